package workerapi

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// FuzzRequests: request bodies are either refused with an answer or decoded exactly.
func FuzzRequests(f *testing.F) {
	f.Add(`{"address":"127.0.0.1:1","left":1,"commit":{"generation":1,"step":2,"hash":"ab"}}`)
	f.Add(`{"generation":1,"step":5,"metrics":{"loss":0.5}}`)
	f.Add(`{"step":5,"hash":"ab","tensors":{"w":"cd"},"dealt":[{"first":1,"last":4,"generation":1,"ranks":[0,1],"again":0}]}`)
	f.Add(`{"generation":1} {"generation":2}`)
	f.Add(`{"generation":-1}`)
	f.Fuzz(func(t *testing.T, body string) {
		understood[workerprotocol.JoinRequest](t, body)
		understood[workerprotocol.Report](t, body)
		understood[workerprotocol.CommitReport](t, body)
		understood[workerprotocol.DoneReport](t, body)
		understood[workerprotocol.HashReport](t, body)
	})
}

func understood[T any](t *testing.T, body string) {
	t.Helper()
	v, err := read[T](httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)))
	if err != nil {
		if err.Error() == "" {
			t.Fatalf("%T: refused without a word", v)
		}
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%T: understood and not encoded again: %v", v, err)
	}
	if _, err := read[T](httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(string(b)))); err != nil {
		t.Fatalf("%T: %s is not understood: %v", v, b, err)
	}
}
