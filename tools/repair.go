package tools

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// arguments are a call's arguments while they are repaired.
type arguments map[string]json.RawMessage

// repair applies fix to arguments that are an object, or an object in a
// string. What cannot be repaired stays as it is, for the validation to
// refuse.
func repair(raw json.RawMessage, fix func(a arguments)) json.RawMessage {
	object := raw
	var s string
	if json.Unmarshal(raw, &s) == nil {
		object = json.RawMessage(s)
	}
	var a arguments
	if json.Unmarshal(object, &a) != nil || a == nil {
		return raw
	}
	for key, v := range a {
		if string(v) == "null" {
			delete(a, key)
		}
	}
	fix(a)
	fixed, err := json.Marshal(a)
	if err != nil {
		return raw
	}
	return fixed
}

// rename gives key the value of the first of the other names that is there,
// unless it has one.
func (a arguments) rename(key string, others ...string) {
	for _, other := range others {
		if _, ok := a[key]; ok {
			return
		}
		if v, ok := a[other]; ok {
			a[key] = v
			delete(a, other)
		}
	}
}

// keep drops what is none of the keys.
func (a arguments) keep(keys ...string) {
	for key := range a {
		known := false
		for _, k := range keys {
			known = known || k == key
		}
		if !known {
			delete(a, key)
		}
	}
}

func (a arguments) set(key string, v any) {
	if raw, err := json.Marshal(v); err == nil {
		a[key] = raw
	}
}

// path repairs the name of the argument path.
func (a arguments) path() {
	a.rename("path", "file_path", "filePath", "filepath", "file", "filename", "fileName")
}

// number makes a number of one in quotes.
func (a arguments) number(key string, others ...string) {
	a.rename(key, others...)
	var s string
	if json.Unmarshal(a[key], &s) == nil && a[key] != nil {
		if f, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			a.set(key, f)
		}
	}
}

// integer makes a whole number of one in quotes or with a fraction of zero.
func (a arguments) integer(key string, others ...string) {
	a.number(key, others...)
	var f float64
	if json.Unmarshal(a[key], &f) == nil && a[key] != nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		a.set(key, int64(f))
	}
}
