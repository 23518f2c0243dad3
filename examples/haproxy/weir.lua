-- http-request lua.weir URL: asks weir about the request. The answer is in the variables
-- txn.weir_status, txn.weir_ratelimit, txn.weir_ratelimit_policy and txn.weir_retry_after;
-- none of them is set while weir is away.

local timeout_ms = 250

-- Headers that speak of the client's connection or of the request's body, which the check
-- does not have.
local own = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
	["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
}

local function lines(values)
	local all = {}
	for i = 0, #values do
		all[#all + 1] = values[i]
	end
	return all
end

core.register_action("weir", { "http-req" }, function(txn, url)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not own[name] then
			headers[name] = lines(values)
		end
	end
	-- In place of what the client sends under these names.
	headers["x-forwarded-for"] = { txn.sf:src() }
	headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
	headers["x-forwarded-method"] = { txn.sf:method() }
	headers["x-forwarded-uri"] = { txn.sf:pathq() }

	local answer = core.httpclient():get { url = url, headers = headers, timeout = timeout_ms }
	if answer == nil or answer.status == nil or answer.status == 0 then
		return
	end
	txn:set_var("txn.weir_status", answer.status)
	for _, name in ipairs({ "ratelimit", "ratelimit-policy", "retry-after" }) do
		local values = answer.headers[name]
		if values ~= nil then
			txn:set_var("txn.weir_" .. name:gsub("-", "_"), values[0])
		end
	end
end, 1)
