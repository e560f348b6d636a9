package openai

import "encoding/json"

// number is a count that is never negative; null, a fraction or another value
// than a number counts as far as it can.
type number int64

const maxNumber = 1 << 50

func (n *number) UnmarshalJSON(data []byte) error {
	var f float64
	if json.Unmarshal(data, &f) != nil || f < 0 {
		f = 0
	}
	*n = number(min(f, maxNumber))
	return nil
}
