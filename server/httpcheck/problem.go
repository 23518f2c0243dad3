package httpcheck

import (
	"encoding/json"
	"fmt"
	"net/http"

	"weir.dev/weir/server/rls"
)

// problem is a body of RFC 9457, of the types that the draft of the headers defines.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// deny answers a request that is over a limit.
func deny(w http.ResponseWriter, status int, answer *rls.Answer) {
	detail := "The request is over a limit that no waiting helps."
	if wait := w.Header().Get("Retry-After"); wait != "" {
		detail = fmt.Sprintf("The request is over a limit; retry in %s s.", wait)
	}
	problem{problemTypes + "quota-exceeded", "Quota exceeded", status, detail, answer.Violated}.write(w)
}

// undecided answers a request about which nothing could decide. With status 200 it passes.
func undecided(w http.ResponseWriter, status int, detail string) {
	if status == http.StatusOK {
		return
	}
	problem{problemTypes + "temporary-reduced-capacity", "Temporarily reduced capacity", status, detail, nil}.write(w)
}

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // texts and a number do not fail
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) // nobody is left to tell of an error
}
