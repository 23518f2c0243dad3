package preview

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const combinedLine = `203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET /a/b?c=d HTTP/1.1" 200 203023 "http://example.com/" "curl/8.5.0"`

var at = time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC).UnixMicro()

func TestEveryFormatTellsTheSameRequest(t *testing.T) {
	t.Parallel()
	want := Record{at, [fieldCount]string{"203.0.113.9", "alice", "GET", "/a/b", "200", "203023", "curl/8.5.0"}}
	for name, line := range map[string]string{
		"combined":        combinedLine,
		"appended fields": combinedLine + ` 12 "router" 3ms`,
		"virtual host":    "example.com:443 " + combinedLine,
		"another zone":    strings.Replace(combinedLine, "10:05:03 +0000", "12:05:03 +0200", 1),
		"our names":       `{"time":"2015-05-17T10:05:03Z","addr":"203.0.113.9","user":"alice","method":"GET","path":"/a/b?c=d","status":200,"bytes":203023,"agent":"curl/8.5.0"}`,
		"nginx":           `{"time_local":"17/May/2015:10:05:03 +0000","remote_addr":"203.0.113.9","remote_user":"alice","request":"GET /a/b?c=d HTTP/1.1","status":"200","body_bytes_sent":"203023","http_user_agent":"curl/8.5.0"}`,
		"Caddy":           `{"ts":1431857103.0,"request":{"remote_ip":"10.0.0.1","client_ip":"203.0.113.9","method":"GET","uri":"/a/b?c=d","headers":{"User-Agent":["curl/8.5.0"]}},"user_id":"alice","size":203023,"status":200}`,
		"Traefik":         `{"StartUTC":"2015-05-17T10:05:03.000000Z","ClientHost":"203.0.113.9","ClientUsername":"alice","RequestMethod":"GET","RequestPath":"/a/b?c=d","DownstreamStatus":200,"DownstreamContentSize":203023,"request_User-Agent":"curl/8.5.0"}`,
		"Istio":           `{"start_time":"2015-05-17T10:05:03.000Z","downstream_remote_address":"203.0.113.9:41342","user":"alice","method":"GET","path":"/a/b?c=d","response_code":200,"bytes_sent":203023,"user_agent":"curl/8.5.0"}`,
	} {
		got, err := Detect.Parse(line)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

func TestOddLinesAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line  string
		field Field
		want  string
	}{
		{`h - - [17/May/2015:10:05:03 +0000] "-" 408 -`, Method, "-"},
		{`h - - [17/May/2015:10:05:03 +0000] "-" 408 -`, Path, "-"},
		{`h - - [17/May/2015:10:05:03 +0000] "-" 408 -`, Bytes, "0"},
		{`h - - [17/May/2015:10:05:03 +0000] "" 400 0`, Path, "-"},
		{`h - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 0`, Method, "-"},
		{`h - - [17/May/2015:10:05:03 +0000] "GET /a b HTTP/1.0" 200 1`, Path, "/a b"},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Agent, ""},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1 "-" ""`, Agent, "-"},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1 "-" "cut`, Agent, ""},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1 "cut`, Status, "200"},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1 "-" "say \"hi\" \\"`, Agent, `say "hi" \`},
		{`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1 "-" "\q"`, Agent, `\q`},
		{`h - John Doe [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, User, "John Doe"},
		{`::ffff:1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Addr, "1.2.3.4"},
		{`2001:DB8::0:1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Addr, "2001:db8::1"},
		{`[fe80::1%eth0]:443 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Addr, "fe80::1"},
		{`host.example - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Addr, "host.example"},
		{`{"ts":1,"addr":"h"}`, User, "-"},
		{`{"ts":1,"addr":"h"}`, Status, ""},
		{`{"ts":1,"addr":null,"remote_addr":"x"}`, Addr, "x"},
	} {
		got, err := Detect.Parse(c.line)
		if err != nil || got.Fields[c.field] != c.want {
			t.Errorf("{%v} of %s\ngot %q, %v; want %q", c.field, c.line, got.Fields[c.field], err, c.want)
		}
	}
}

func TestTimesInSecondsKeepTheirMicroseconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`"1646861401.524102"`:                1646861401524102,
		`1646861401.5241024`:                 1646861401524102,
		`0`:                                  0,
		`"2090-01-01T00:00:00.000001+00:00"`: time.Date(2090, 1, 1, 0, 0, 0, 1000, time.UTC).UnixMicro(),
	} {
		got, err := JSON.Parse(`{"time":` + text + `}`)
		if err != nil || got.AtMicros != want {
			t.Errorf("%s: got %d, %v; want %d", text, got.AtMicros, err, want)
		}
	}
}

func TestBadLinesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format     Format
		line, want string
	}{
		{Detect, "hello", "no [time]"},
		{Detect, "", "no [time]"},
		{Detect, " - - [", "no [time]"},
		{Detect, "h - - [17/May/2015:10:05:03 +0000", "does not end"},
		{Detect, `h - - [17/Mai/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, `time "17/Mai/2015:10:05:03 +0000" is not like`},
		{Detect, `h - - [31/Dec/1969:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, "not within 1970 to 2100"},
		{Detect, `h - - [31/Dec/2500:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, "not within 1970 to 2100"},
		{Detect, `h - - [31/Dec/2099:23:59:59 -2359] "GET / HTTP/1.0" 200 1`, "not within 1970 to 2100"}, // 2100 in UTC
		{Detect, `h - - [17/May/2015:10:05:03 +0000] GET / HTTP/1.0 200 1`, "no quoted request"},
		{Detect, `h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0 200 1`, "quoted request does not end"},
		{Detect, `h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0\" 200 1`, "quoted request does not end"},
		{Detect, `h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" OK 1`, `status "OK" is not a number`},
		{Detect, `h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200`, `bytes "" are not a number`},
		{JSON, combinedLine, "not a JSON object"},
		{Combined, `{"ts":1}`, "no [time]"},
		{Detect, `{"ts":1`, "not a JSON object"},
		{Detect, `{"ts":1}}`, "not one JSON object"},
		{JSON, `null`, "not one JSON object"},
		{JSON, `[]`, "not a JSON object"},
		{JSON, `{"addr":"h"}`, "no time under any of time,"},
		{JSON, `{"ts":1646861401524}`, "want seconds since 1970"},
		{JSON, `{"ts":-1}`, "want seconds since 1970"},
		{JSON, `{"ts":"NaN"}`, "want seconds since 1970"},
	} {
		if _, err := c.format.Parse(c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot %v; want %q", c.line, err, c.want)
		}
	}
}

func TestUnknownFormatIsRefusedWithTheFormatsThereAre(t *testing.T) {
	t.Parallel()
	if _, err := ParseFormat("clf"); err == nil || !strings.Contains(err.Error(), "common, combined or json") {
		t.Errorf("got %v; want the formats", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(combinedLine)
	f.Add(`::1 - - [17/May/2015:10:05:03 +0000] "\x16\"" 400 - "-" "\`)
	f.Add(`{"ts":1646861401.5,"request":{"client_ip":"::1","headers":{"User-Agent":["a"]}},"status":200}`)
	f.Add(`{"time":"1e300","request":"GET / HTTP/1.1"}`)
	f.Fuzz(func(t *testing.T, line string) {
		for format := Detect; format <= JSON; format++ {
			r, err := format.Parse(line)
			if err != nil {
				if len(err.Error()) > 1000 {
					t.Errorf("format %d: an error of %d bytes for a line of %d", format, len(err.Error()), len(line))
				}
				continue
			}
			if r.AtMicros < 0 || r.AtMicros >= 1<<53 {
				t.Errorf("format %d: time %d is outside 0 to 2^53", format, r.AtMicros)
			}
			if r.Fields[User] == "" {
				t.Errorf("format %d: empty user: %q", format, r.Fields)
			}
			if utf8.ValidString(line) && !strings.ContainsAny(line, `\`) && !utf8.ValidString(strings.Join(r.Fields[:], "")) {
				t.Errorf("format %d: %q became invalid UTF-8: %q", format, line, r.Fields)
			}
		}
	})
}
