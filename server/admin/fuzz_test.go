package admin_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// FuzzQuestion: whatever the body is, the answer is JSON: an explanation of each entry up to
// the first without a match, or an error that blames the question.
func FuzzQuestion(f *testing.F) {
	for _, body := range []string{
		alice, "", "null", "{}", "[" + alice + "]", alice + "{}", `{"domain": "shop", "entries": [null]}`,
		`{"domain": "shop", "entries": [{"key": "user", "value": "vip"}, {"key": "", "value": "\u0000"}]}`,
		`{"DOMAIN": "shop", "entries": [{"KEY": "nothing"}]}`, "{\"domain\": \"\xff\"}", `{"domain": "shop", "entries": [{"key": "user", "value": "\ud800"}]}`,
	} {
		f.Add(body)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		f.Fatal(err)
	}
	service, err := rls.New(store, rls.Options{})
	if err != nil {
		f.Fatal(err)
	}
	config, err := rules.Parse(rules.File{Name: "limits.yaml", Data: []byte(shop)})
	if err != nil {
		f.Fatal(err)
	}
	if err := service.SetRules(config); err != nil {
		f.Fatal(err)
	}
	api := admin.API(service, admin.Access{Local: func() bool { return true }}, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/admin/peek", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		var answer struct {
			Error string
			admin.Explanation
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("got %s, want JSON", w.Body)
		}
		switch w.Code {
		case http.StatusOK:
			if answer.Error != "" || len(answer.Steps) == 0 || answer.Rule != nil && answer.Steps[len(answer.Steps)-1].How == rules.ByNothing {
				t.Errorf("got %+v, want an explanation", answer)
			}
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			if answer.Error == "" {
				t.Errorf("got %d and %s, want why", w.Code, w.Body)
			}
		default:
			t.Errorf("got %d, want 200, or the question to be blamed", w.Code)
		}
	})
}
