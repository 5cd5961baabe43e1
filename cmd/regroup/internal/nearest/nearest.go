// Package nearest answers one question: which of the known words did the user mean?
package nearest

import "fmt"

// Word returns the known word that is nearest to what was typed, "" if none is near: one edit, and one more for every
// three characters.
func Word(typed string, known []string) string {
	if len(typed) > 80 { // nobody mistypes that; the distance costs len²
		return ""
	}
	best, limit := "", 1+len(typed)/3
	for _, k := range known {
		if d := distance(typed, k); d <= limit && (best == "" || d < limit) {
			best, limit = k, d
		}
	}
	return best
}

// Hint returns `did you mean "max"?`, or "".
func Hint(typed string, known []string) string {
	if w := Word(typed, known); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}

// distance counts single-byte edits (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
