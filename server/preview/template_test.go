package preview

import (
	"strings"
	"testing"
)

func TestTemplatesFillInTheirFields(t *testing.T) {
	t.Parallel()
	r, err := Detect.Parse(combinedLine)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"client={addr}":     "203.0.113.9",
		"who={user}@{addr}": "alice@203.0.113.9",
		"route=api":         "api",
		"a=b=c":             "b=c",
		"all={method} {path} {status} {bytes} {agent}": "GET /a/b 200 203023 curl/8.5.0",
	} {
		template, err := ParseTemplate(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := template.Value(&r); err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestBadTemplatesSayWhatToWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              `write it as 'key={addr}'`,
		"{addr}":        `write it as 'key={addr}'`,
		"={addr}":       "no key",
		"key=":          "no value",
		"{a}=b":         "brace in the key",
		"key={address}": "unknown field {address}: the fields are {addr} {user} {method} {path} {status} {bytes} {agent}",
		"key={}":        "unknown field {}",
		"key={addr":     "not closed",
		"key=addr}":     "closes nothing",
		"key={{addr}}":  "unknown field {{addr}",
		"key={ addr }":  "unknown field { addr }",
	} {
		if _, err := ParseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v; want %q", text, err, want)
		}
	}
}

func TestFieldThatTheLineLacksIsAnError(t *testing.T) {
	t.Parallel()
	r, err := Detect.Parse(`h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`)
	if err != nil {
		t.Fatal(err)
	}
	template, err := ParseTemplate("client={addr} {agent}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := template.Value(&r); err == nil || !strings.Contains(err.Error(), "no {agent}") {
		t.Errorf("got %q, %v; want an error about {agent}", got, err)
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"client={addr}", "a={user}@{addr}", "={", "a={}}", "a=b"} {
		f.Add(s)
	}
	var r Record
	for i := range r.Fields {
		r.Fields[i] = "x"
	}
	f.Fuzz(func(t *testing.T, s string) {
		template, err := ParseTemplate(s)
		if err != nil {
			return
		}
		value, err := template.Value(&r)
		if err != nil || value == "" || template.Key == "" || strings.ContainsAny(value, "{}") {
			t.Errorf("%q: key %q, value %q, %v", s, template.Key, value, err)
		}
		if again, err := ParseTemplate(template.Key + "=" + value); err != nil || again.Key != template.Key {
			t.Errorf("%q: %q=%q does not read back: %v", s, template.Key, value, err)
		}
	})
}
