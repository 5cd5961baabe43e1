package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway/feed"
	"github.com/regroup-io/regroup/services/gateway/openapi"
)

// encodesItself are the schemas of types whose JSON is not that of their fields.
var encodesItself = map[reflect.Type]openapi.Schema{
	reflect.TypeFor[events.Places](): {"type": []string{"array", "null"}, "items": openapi.Schema{"type": "string"}},
	reflect.TypeFor[feed.Point]():    {"type": "array", "items": openapi.Schema{"type": "number"}, "minItems": 3, "maxItems": 3},
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// describe returns the OpenAPI 3.1 document of the routes.
func describe(routes []route, version string) ([]byte, error) {
	s := openapi.New(encodesItself)
	type object = map[string]any
	paths := object{}
	for _, r := range routes {
		op := object{"operationId": r.name, "summary": r.what}
		var parameters []object
		for _, m := range pathParameter.FindAllStringSubmatch(r.path, -1) {
			parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for in, all := range map[string][]parameter{"query": r.query, "header": r.headers} {
			for _, p := range all {
				parameters = append(parameters, object{"name": p.name, "in": in, "description": p.what, "schema": object{"type": p.kind}})
			}
		}
		if len(parameters) > 0 {
			op["parameters"] = parameters
		}
		forms := func(all []content) object {
			out := object{}
			for _, c := range all {
				form := object{"schema": object{"type": "string"}}
				if c.typ != nil {
					form["schema"] = s.Of(c.typ)
				}
				out[c.media] = form
			}
			return out
		}
		if len(r.takes) > 0 {
			op["requestBody"] = object{"content": forms(r.takes)}
		}
		success := object{"description": http.StatusText(r.status)}
		if len(r.gives) > 0 {
			success["content"] = forms(r.gives)
		}
		op["responses"] = object{
			strconv.Itoa(r.status): success,
			"default":              object{"description": "what is wrong, and with which field", "content": object{mediaProblem: object{"schema": s.Of(reflect.TypeFor[Problem]())}}},
		}
		if r.open {
			op["security"] = []object{}
		}
		at, _ := paths[r.path].(object)
		if at == nil {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = op
	}
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info":    object{"title": "Regroup", "version": cmp.Or(version, "dev"), "description": "Jobs, nodes, events and output. Errors are problems (RFC 9457) whose code is that of the command line."},
		"paths":   paths,
		"components": object{
			"schemas":         s.Named,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"token": []string{}}},
	}, "", "  ")
}

func (g *Gateway) describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", mediaJSON)
	_, _ = w.Write(g.document) // the client has gone
	return nil
}
