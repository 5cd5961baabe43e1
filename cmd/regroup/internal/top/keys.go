package top

import (
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// keysHelp are the keys, for ?.
var keysHelp = [][2]string{
	{"↑ ↓, k j", "choose a job; Page Up, Page Down, Home and End too"},
	{"Enter", "open it: its workers, newest incidents and newest output"},
	{"Esc", "back to the list; without a job open, no filter any more"},
	{"/", "show only jobs with a text in one of their columns or in their command"},
	{"1 to 8", "sort by a column; again: the other way round"},
	{"?", "these keys"},
	{"q", "end"},
}

// key applies a key.
func (m model) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := k.String()
	if name == "ctrl+c" {
		m.interrupted = true
		return m, tea.Quit
	}
	if m.typing {
		return m.typed(k), nil
	}
	if m.help { // any key ends it
		m.help = false
		return m, nil
	}
	switch name {
	case "q", "Q":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "?", "h":
		m.help = true
	case "/":
		if m.open == nil {
			m.typing = true
		}
	case "esc", "backspace", "left":
		if m.open != nil {
			m.open = nil
		} else {
			m.filter = ""
		}
	case "enter", "right":
		return m.enter()
	default:
		if m.open != nil {
			m.open = m.open.scrolled(name, m.height)
			return m, nil
		}
		if len(name) == 1 && name[0] >= '1' && int(name[0]-'1') < len(header) {
			return m.sortBy(int(name[0] - '1')), nil
		}
		m = m.move(name)
	}
	return m, nil
}

func (m model) sortBy(column int) model {
	m.reverse = column == m.sort && !m.reverse
	m.sort = column
	return m
}

// typed applies a key to the filter.
func (m model) typed(k tea.KeyPressMsg) model {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	default:
		m.filter += k.Text // "" of what is no character
	}
	return m
}

// enter opens the chosen job.
func (m model) enter() (tea.Model, tea.Cmd) {
	all := m.jobs()
	if m.open != nil || len(all) == 0 {
		return m, nil
	}
	m.open = &detail{id: all[m.cursor(all)].Job}
	return m, m.askJob()
}

// move chooses another job.
func (m model) move(name string) model {
	all := m.jobs()
	if len(all) == 0 {
		return m
	}
	at := m.cursor(all)
	page := max(1, m.height/2)
	switch name {
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "pgup":
		at -= page
	case "pgdown", "space":
		at += page
	case "home", "g":
		at = 0
	case "end", "G":
		at = len(all) - 1
	}
	m.chosen = all[max(0, min(at, len(all)-1))].Job
	return m
}

// scrolled is the detail after a key that moves it.
func (d *detail) scrolled(name string, height int) *detail {
	next := *d
	switch name {
	case "up", "k":
		next.scroll--
	case "down", "j":
		next.scroll++
	case "pgup":
		next.scroll -= height / 2
	case "pgdown", "space":
		next.scroll += height / 2
	case "home", "g":
		next.scroll = 0
	}
	next.scroll = max(0, next.scroll)
	return &next
}
