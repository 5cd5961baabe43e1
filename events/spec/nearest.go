package spec

import "fmt"

// Nearest returns the known word most similar to word, or "" if none is similar enough: within one
// edit, plus one for every three characters.
func Nearest(word string, known []string) string {
	if len(word) > 80 { // too long for a typing error; the distance costs len²
		return ""
	}
	best, limit := "", 1+len(word)/3
	for _, k := range known {
		if d := distance(word, k); d <= limit && (best == "" || d < limit) {
			best, limit = k, d
		}
	}
	return best
}

// DidYouMean returns `did you mean "max"?` for the nearest known word, or "" if there is none.
func DidYouMean(word string, known []string) string {
	if w := Nearest(word, known); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}

// distance counts the single-byte edits between two words (Levenshtein 1966).
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
