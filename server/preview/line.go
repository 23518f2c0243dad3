package preview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Field is a part of a request that access logs tell and templates name.
type Field uint8

// The fields.
const (
	Addr   Field = iota // the client's address, or its host name if the server looked it up; never its port
	User                // the authenticated user, "-" for nobody
	Method              // "-" where the client sent no request that could be read
	Path                // without the query; "-" likewise
	Status              // the answer's status code
	Bytes               // the size of the answer's body, "0" where the log has "-"
	Agent               // the User-Agent header, "-" for none
	fieldCount
)

var fieldNames = [fieldCount]string{"addr", "user", "method", "path", "status", "bytes", "agent"}

// String returns the field as templates write it, without the braces.
func (f Field) String() string {
	if f < fieldCount {
		return fieldNames[f]
	}
	return fmt.Sprintf("field(%d)", uint8(f))
}

// Record is one request as a line of a log tells it.
type Record struct {
	AtMicros int64              // when, in microseconds since 1970
	Fields   [fieldCount]string // "" where the line does not have the field
}

// Format is how a log writes its lines.
type Format uint8

// The formats.
const (
	Detect   Format = iota // JSON where a line begins with a brace, else Combined or Common
	Common                 // the Common Log Format of NCSA httpd and Apache: host ident user [time] "request" status bytes
	Combined               // Common, then "referer" "agent"
	JSON                   // a JSON object a line; Parse says which names it knows
)

// ParseFormat returns the format called common, combined or json; "" is Detect.
func ParseFormat(name string) (Format, error) {
	switch name {
	case "":
		return Detect, nil
	case "common":
		return Common, nil
	case "combined":
		return Combined, nil
	case "json":
		return JSON, nil
	}
	return 0, fmt.Errorf("unknown format %q: write common, combined or json, or leave it out to tell them apart by line", name)
}

// Parse reads one line, without its line end. What follows the fields of a format is
// ignored, since servers append their own.
//
// JSON lines may use the names of this package ("time", "addr", "user", ...), those of
// nginx's variables, of Caddy's and Traefik's logs, or of Istio's default for Envoy. The
// time is RFC 3339, the Common format's, or a number of seconds since 1970.
//
// The error says what was found in place of what. The record's strings share the
// line's memory.
func (f Format) Parse(line string) (Record, error) {
	if f == JSON || f == Detect && strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		return parseJSON(line)
	}
	return f.parseText(line)
}

// clfTime is the time of the Common Log Format.
const clfTime = "02/Jan/2006:15:04:05 -0700"

// parseText reads the Common and the Combined format.
func (f Format) parseText(line string) (r Record, err error) {
	host, rest, _ := strings.Cut(line, " ")
	ident, rest, _ := strings.Cut(rest, " ")
	if _, err := netip.ParseAddr(ident); err == nil { // Apache's vhost_combined puts the virtual host first
		host = ident
		_, rest, _ = strings.Cut(rest, " ")
	}
	// A user may hold spaces; the time's bracket ends it.
	user, rest, found := strings.Cut(rest, " [")
	if host == "" || !found {
		return r, errors.New("no [time]: want host ident user [time] \"request\" status bytes")
	}
	at, rest, found := strings.Cut(rest, "] ")
	if !found {
		return r, errors.New("the [time] does not end")
	}
	if r.AtMicros, err = parseTime(at); err != nil {
		return r, err
	}
	request, rest, err := cutQuoted(rest, "request")
	if err != nil {
		return r, err
	}
	status, rest, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	if !isDigits(status) {
		return r, fmt.Errorf("status %.20q is not a number", status)
	}
	size, rest, _ := strings.Cut(rest, " ")
	if size == "-" {
		size = "0"
	}
	if !isDigits(size) {
		return r, fmt.Errorf("bytes %.20q are not a number", size)
	}
	method, path := splitRequest(request)
	r.Fields = [fieldCount]string{
		Addr: bareAddr(host), User: orDash(user), Method: method, Path: path, Status: status, Bytes: size,
	}
	if f != Common {
		r.Fields[Agent] = agentIn(rest)
	}
	return r, nil
}

// agentIn returns the user agent from what Combined adds to Common, or "" where that is
// missing or cut short: the request is none the less one for who does not ask the agent.
func agentIn(tail string) string {
	_, rest, err := cutQuoted(tail, "referer")
	if err != nil {
		return ""
	}
	agent, _, err := cutQuoted(strings.TrimPrefix(rest, " "), "user agent")
	if err != nil {
		return ""
	}
	return orDash(agent)
}

// cutQuoted takes a quoted text from the front of s, in which a backslash protects the
// character behind it, and returns the text and what follows it.
func cutQuoted(s, what string) (text, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", fmt.Errorf("no quoted %s, but %.20q", what, s)
	}
	escaped := false
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			text = s[1:i]
			if escaped && utf8.ValidString(text) {
				if plain, err := strconv.Unquote(s[:i+1]); err == nil {
					text = plain
				}
			}
			return text, s[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("the quoted %s does not end", what)
}

// splitRequest takes "METHOD target HTTP/n" apart. What is no such line (a bare "-", a
// TLS handshake on a plain port) has neither method nor path, and counts all the same.
func splitRequest(request string) (method, path string) {
	method, rest, _ := strings.Cut(request, " ")
	target, _, found := cutLast(rest, " HTTP/")
	if !found || method == "" || target == "" {
		return "-", "-"
	}
	return method, withoutQuery(target)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func withoutQuery(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return orDash(path)
}

// bareAddr returns an address without port, zone and brackets, and IPv4 mapped to IPv6
// as IPv4, so that one client has one key. A host name stays as it is.
func bareAddr(host string) string {
	if !strings.Contains(host, ":") {
		return host
	}
	if a, err := netip.ParseAddrPort(host); err == nil {
		return a.Addr().Unmap().WithZone("").String()
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return host
}

// latest bounds the times that stores compute exactly: microseconds below 2^53.
const latest = 2100

// parseTime reads the time of the Common format, RFC 3339, or seconds since 1970.
func parseTime(s string) (micros int64, err error) {
	t, err := time.Parse(clfTime, s)
	if err != nil {
		t, err = time.Parse(time.RFC3339, s)
	}
	if err != nil {
		seconds, notNumber := strconv.ParseFloat(s, 64)
		if notNumber != nil {
			return 0, fmt.Errorf("time %.40q is not like %s, %s or a number of seconds since 1970", s, clfTime, time.RFC3339)
		}
		if !(seconds >= 0 && seconds < 1e10) {
			return 0, fmt.Errorf("time %.40q is not within 1970 to %d: want seconds since 1970", s, latest)
		}
		whole, part := math.Modf(seconds) // a product would lose the last digits
		t = time.UnixMicro(int64(whole)*1e6 + int64(math.Round(part*1e6)))
	}
	if t.Unix() < 0 || t.UTC().Year() >= latest {
		return 0, fmt.Errorf("time %.40q is not within 1970 to %d", s, latest)
	}
	return t.UnixMicro(), nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// timeNames and jsonNames are the names under which JSON logs hold the time and each
// field, the first that is there wins: ours, nginx, Caddy, Traefik, Istio. A dot goes
// into an object, and the first of a list stands for it.
var (
	timeNames = []string{"time", "time_iso8601", "time_local", "msec", "ts", "StartUTC", "start_time", "timestamp", "@timestamp"}
	jsonNames = [fieldCount][]string{
		Addr:   {"addr", "remote_addr", "request.client_ip", "request.remote_ip", "ClientHost", "downstream_remote_address"},
		User:   {"user", "remote_user", "user_id", "ClientUsername"},
		Method: {"method", "request_method", "request.method", "RequestMethod"},
		Path:   {"path", "request_uri", "uri", "request.uri", "RequestPath"},
		Status: {"status", "DownstreamStatus", "response_code"},
		Bytes:  {"bytes", "body_bytes_sent", "bytes_sent", "size", "DownstreamContentSize"},
		Agent:  {"agent", "http_user_agent", "request.headers.User-Agent", "request_User-Agent", "user_agent"},
	}
)

// parseJSON reads a line that is a JSON object.
func parseJSON(line string) (r Record, err error) {
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber() // a time in seconds keeps its digits
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return r, fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := dec.Token(); object == nil || err != io.EOF {
		return r, errors.New("not one JSON object: want one a line")
	}
	at := lookup(object, timeNames)
	if at == "" {
		return r, fmt.Errorf("no time under any of %s", strings.Join(timeNames, ", "))
	}
	if r.AtMicros, err = parseTime(at); err != nil {
		return r, err
	}
	for field, names := range jsonNames {
		r.Fields[field] = lookup(object, names)
	}
	splitJSONRequest(object, &r)
	r.Fields[Addr] = bareAddr(r.Fields[Addr])
	r.Fields[User] = orDash(r.Fields[User])
	r.Fields[Agent] = orDash(r.Fields[Agent])
	if r.Fields[Path] != "" {
		r.Fields[Path] = withoutQuery(r.Fields[Path])
	}
	return r, nil
}

// splitJSONRequest fills method and path from nginx's "$request", the whole request line.
func splitJSONRequest(object map[string]any, r *Record) {
	request, ok := object["request"].(string)
	if !ok {
		return
	}
	method, path := splitRequest(request)
	if r.Fields[Method] == "" {
		r.Fields[Method] = method
	}
	if r.Fields[Path] == "" {
		r.Fields[Path] = path
	}
}

// lookup returns the first of the names that has a text or a number, or "".
func lookup(object map[string]any, names []string) string {
	for _, name := range names {
		var value any = object
		for step := range strings.SplitSeq(name, ".") {
			inner, ok := value.(map[string]any)
			if !ok {
				value = nil
				break
			}
			value = inner[step]
		}
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		switch v := value.(type) {
		case string:
			if v != "" {
				return v
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}
