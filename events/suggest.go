package events

// suggest returns `did you mean "max"?` for the nearest known word, or "" if none is near.
func suggest(word string, known []string) string {
	if len(word) > 80 { // nobody mistypes that; the distance costs len²
		return ""
	}
	best, at := "", 1+len(word)/3
	for _, k := range known {
		if d := distance(word, k); d <= at && (best == "" || d < at) {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `did you mean "` + best + `"?`
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
