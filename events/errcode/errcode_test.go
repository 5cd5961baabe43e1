package errcode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/regroup-io/regroup/events/spec"
)

func TestErrors(t *testing.T) {
	err := fmt.Errorf("outer: %w", Errorf(Conflict, "inner: %w", io.EOF))
	if !errors.Is(err, ErrConflict) || errors.Is(err, ErrInvalid) || !errors.Is(err, io.EOF) || Of(err) != Conflict {
		t.Errorf("code %q of %v", Of(err), err)
	}
	two := Errorf(Unavailable, "%w and %w", io.EOF, io.ErrShortWrite)
	if !errors.Is(two, io.EOF) || !errors.Is(two, io.ErrShortWrite) {
		t.Error("one of two causes is lost")
	}
	for err, want := range map[error]Code{nil: "", io.EOF: Internal, context.Canceled: Cancelled, context.DeadlineExceeded: Cancelled} {
		if got := Of(err); got != want {
			t.Errorf("code of %v is %q, want %q", err, got, want)
		}
	}
	refused := Refuse([]spec.FieldError{{Path: "a", Message: "b"}, {Path: "c", Message: "d", Hint: "e"}})
	if Of(refused) != Invalid || !errors.Is(refused, ErrInvalid) || refused.Error() != "a: b; c: d (e)" || Refuse(nil) != nil {
		t.Errorf("refusal %v", refused)
	}
	if f := FieldErrorsOf(io.EOF); len(f) != 1 || f[0].Message != "EOF" || FieldErrorsOf(nil) != nil {
		t.Errorf("findings %v", f)
	}
}
