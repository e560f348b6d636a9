package openai

import (
	"encoding/json"

	"github.com/wp-durable/wp-durable/durable/model"
)

// chatUsage is the usage of Chat Completions with the fields that servers add.
// Numbers may be null or fractions.
type chatUsage struct {
	Prompt     number `json:"prompt_tokens"`
	Completion number `json:"completion_tokens"`
	Total      number `json:"total_tokens"`
	CacheHit   number `json:"prompt_cache_hit_tokens"` // DeepSeek
	Cached     number `json:"cached_tokens"`           // Moonshot
	In         struct {
		Cached     number `json:"cached_tokens"`
		CacheWrite number `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	Out struct {
		Reasoning number `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Reasoning number `json:"reasoning_tokens"`
}

// responseUsage is the usage of the Responses API.
type responseUsage struct {
	Input  number `json:"input_tokens"`
	Output number `json:"output_tokens"`
	Total  number `json:"total_tokens"`
	In     struct {
		Cached     number `json:"cached_tokens"`
		CacheWrite number `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Out struct {
		Reasoning number `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

func (u *chatUsage) normal(prices *model.Prices) *model.Usage {
	return normalUsage(prices, u.Prompt, max(u.In.Cached, u.CacheHit, u.Cached), u.In.CacheWrite,
		u.Completion, max(u.Out.Reasoning, u.Reasoning), u.Total)
}

func (u *responseUsage) normal(prices *model.Prices) *model.Usage {
	return normalUsage(prices, u.Input, u.In.Cached, u.In.CacheWrite, u.Output, u.Out.Reasoning, u.Total)
}

// normalUsage subtracts what was read from and written to the cache from the
// input, and adds thinking to the output where the server's total shows that
// it was counted beside it.
func normalUsage(prices *model.Prices, input, read, write, output, reasoning, total number) *model.Usage {
	if reasoning > 0 && total == input+output+reasoning {
		output += reasoning
	}
	read = min(read, input)
	write = min(write, input-read)
	u := &model.Usage{
		Input: int64(input - read - write), CacheRead: int64(read), CacheWrite: int64(write),
		Output: int64(output), Reasoning: int64(min(reasoning, output)),
	}
	u.Price(prices)
	return u
}

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
