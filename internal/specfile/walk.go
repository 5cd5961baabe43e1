package specfile

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/regroup-io/regroup/events/spec"
)

type spot struct{ line, column int }

type field struct {
	key, value spot
	again      spot // position of a duplicate key
	scalar     string
}

// walker converts a YAML tree to JSON and records the position of each path.
type walker struct {
	fields  map[string]field
	anchors map[string]ast.Node
	depth   int
	nodes   int
	bad     []spec.FieldError
}

// A YAML document may refer to itself, and few aliases can expand to billions of nodes.
const (
	maxDepth = 50
	maxNodes = 100_000
)

// Visit implements ast.Visitor. It collects the anchors, which merge keys need on the way.
func (w *walker) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		w.anchors[a.Name.GetToken().Value] = a.Value
	}
	return w
}

func position(n ast.Node) spot {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return position(m.Values[0].Key)
	}
	if v, ok := n.(*ast.MappingValueNode); ok {
		return position(v.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return spot{t.Position.Line, t.Position.Column}
	}
	return spot{}
}

// node returns the JSON of a YAML node at a path.
func (w *walker) node(path string, n ast.Node) []byte {
	w.depth++
	defer func() { w.depth-- }()
	if w.nodes++; w.nodes > maxNodes {
		return []byte("null")
	}
	if w.depth > maxDepth {
		w.complain(path, n, "is nested too deeply")
		return []byte("null")
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return w.mapping(path, n.Values)
	case *ast.MappingValueNode:
		return w.mapping(path, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		parts := make([]string, 0, len(n.Values))
		for i, item := range n.Values {
			p := fmt.Sprintf("%s[%d]", path, i)
			w.fields[p] = field{key: position(item), value: position(item), scalar: scalarText(item)}
			parts = append(parts, string(w.node(p, item)))
		}
		return []byte("[" + strings.Join(parts, ",") + "]")
	case *ast.AnchorNode:
		return w.node(path, n.Value)
	case *ast.TagNode:
		if text, ok := n.Value.(ast.ScalarNode); ok && n.Start.Value == "!!str" {
			out, _ := json.Marshal(text.GetToken().Value) // cannot fail for a string
			return out
		}
		return w.node(path, n.Value)
	case *ast.LiteralNode: // GetValue would return its source
		out, _ := json.Marshal(n.Value.Value)
		return out
	case *ast.AliasNode:
		if target, ok := w.anchors[n.Value.GetToken().Value]; ok {
			return w.node(path, target)
		}
		w.complain(path, n, fmt.Sprintf("refers to *%s, which is nowhere", n.Value.GetToken().Value))
		return []byte("null")
	case ast.ScalarNode:
		return w.scalar(path, n)
	}
	return []byte("null")
}

func (w *walker) mapping(path string, values []*ast.MappingValueNode) []byte {
	given := map[string]bool{}
	for _, v := range values {
		given[v.Key.GetToken().Value] = true
	}
	var parts []string
	for _, v := range values {
		if v.Key.IsMergeKey() {
			parts = append(parts, w.merged(path, v.Value, given)...)
			continue
		}
		name := v.Key.GetToken().Value
		parts = append(parts, w.entry(path, name, v.Key, v.Value))
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

func (w *walker) entry(path, name string, key, value ast.Node) string {
	p := spec.JoinPath(path, name)
	f, twice := w.fields[p]
	if twice {
		f.again = position(key)
	} else {
		f = field{key: position(key), value: position(value), scalar: scalarText(value)}
	}
	w.fields[p] = f
	k, _ := json.Marshal(name) // a string cannot fail
	return string(k) + ":" + string(w.node(p, value))
}

// merged returns the entries of a merge key that the mapping does not override (YAML 1.1, merge key
// type).
func (w *walker) merged(path string, n ast.Node, given map[string]bool) []string {
	w.depth++
	defer func() { w.depth-- }()
	switch n := n.(type) {
	case *ast.AliasNode:
		if target, ok := w.anchors[n.Value.GetToken().Value]; ok && w.depth < maxDepth {
			return w.merged(path, target, given)
		}
	case *ast.AnchorNode:
		return w.merged(path, n.Value, given)
	case *ast.SequenceNode:
		var parts []string
		for _, item := range n.Values {
			parts = append(parts, w.merged(path, item, given)...)
		}
		return parts
	case *ast.MappingValueNode:
		return w.mergedValues(path, []*ast.MappingValueNode{n}, given)
	case *ast.MappingNode:
		return w.mergedValues(path, n.Values, given)
	}
	w.complain(path, n, "<< must refer to a mapping")
	return nil
}

func (w *walker) mergedValues(path string, values []*ast.MappingValueNode, given map[string]bool) []string {
	var parts []string
	for _, v := range values {
		name := v.Key.GetToken().Value
		if given[name] || v.Key.IsMergeKey() {
			continue
		}
		given[name] = true
		parts = append(parts, w.entry(path, name, v.Key, v.Value))
	}
	return parts
}

func (w *walker) scalar(path string, n ast.ScalarNode) []byte {
	v := n.GetValue()
	if x, ok := v.(float64); ok && (math.IsInf(x, 0) || math.IsNaN(x)) {
		v = n.GetToken().Value // as a string: validation reports the expected type
	}
	out, err := json.Marshal(v)
	if err != nil {
		w.complain(path, n, "cannot be read: "+err.Error())
		return []byte("null")
	}
	return out
}

func scalarText(n ast.Node) string {
	if s, ok := n.(ast.ScalarNode); ok {
		return s.GetToken().Value
	}
	return ""
}

func (w *walker) complain(path string, n ast.Node, message string) {
	s := position(n)
	w.bad = append(w.bad, spec.FieldError{Path: path, Line: s.line, Column: s.column, Message: message})
}

// locate sets the position of a finding: that of its field, else of the nearest enclosing one.
func (w *walker) locate(f spec.FieldError) spec.FieldError {
	path, own := f.Path, true
	for path != "" {
		if e, ok := w.fields[path]; ok {
			s := e.value
			switch {
			case e.again != (spot{}):
				s = e.again
			case !own || f.Message == "unknown field" || strings.HasPrefix(f.Message, "is not built yet"):
				s = e.key
			}
			f.Line, f.Column = s.line, s.column
			if own && f.Hint == "" && e.scalar != "" && strings.HasPrefix(f.Message, "must be text, got") {
				f.Hint = "write it in quotes: " + strconv.Quote(e.scalar)
			}
			return f
		}
		own = false
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return f
}
