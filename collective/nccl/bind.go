package nccl

import (
	"reflect"
	"strconv"

	"github.com/ebitengine/purego"
)

// bind fills the function fields of calls from the library and returns the names of
// those that it lacks, except optional ones, which stay nil.
func bind(library uintptr, calls any) (missing []string) {
	fields := reflect.ValueOf(calls).Elem()
	for i := range fields.NumField() {
		tag := fields.Type().Field(i).Tag
		symbol := tag.Get("symbol")
		address, err := purego.Dlsym(library, symbol)
		switch {
		case err == nil:
			purego.RegisterFunc(fields.Field(i).Addr().Interface(), address)
		case tag.Get("since") == "":
			missing = append(missing, symbol)
		}
	}
	return missing
}

// since is the first version with an optional call.
func since(field string) Version {
	f, ok := reflect.TypeFor[ncclCalls]().FieldByName(field)
	if !ok {
		panic("nccl: no call " + field)
	}
	n, err := strconv.Atoi(f.Tag.Get("since"))
	if err != nil {
		panic("nccl: call " + field + " is not optional")
	}
	return Version(n)
}
