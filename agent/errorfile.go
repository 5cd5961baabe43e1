package agent

import (
	"encoding/json"
	"os"
)

// errorFile reads the error that a program left in TORCHELASTIC_ERROR_FILE (written by torch's @record), as one line;
// the file is removed. Both shapes that torch writes are understood: message as text, or with the text inside.
func errorFile(path string) string {
	if path == "" {
		return ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_ = os.Remove(path)
	var flat struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &flat) == nil {
		return flat.Message
	}
	var deep struct {
		Message struct {
			Message string `json:"message"`
		} `json:"message"`
	}
	if json.Unmarshal(b, &deep) == nil {
		return deep.Message.Message
	}
	return ""
}
