package model

// Usage is what a model or tool call consumed: tokens, and US dollars.
// Input counts neither CacheRead nor CacheWrite; Output includes Reasoning.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cacheRead"`
	CacheWrite int64 `json:"cacheWrite"`
	Reasoning  int64 `json:"reasoning"`
	Total      int64 `json:"total"`
	Cost       Cost  `json:"cost"`
}

// Cost is an amount in US dollars, by kind of token.
type Cost struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
	Total      float64 `json:"total"`
}

// Clone returns a copy.
func (u *Usage) Clone() Usage { return *u }

// IsZero reports whether nothing was consumed.
func (u *Usage) IsZero() bool { return u == nil || *u == Usage{} }

// Add adds v to u.
func (u *Usage) Add(v *Usage) {
	if v == nil {
		return
	}
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
	u.Reasoning += v.Reasoning
	u.Total += v.Total
	u.Cost.Input += v.Cost.Input
	u.Cost.Output += v.Cost.Output
	u.Cost.CacheRead += v.Cost.CacheRead
	u.Cost.CacheWrite += v.Cost.CacheWrite
	u.Cost.Total += v.Cost.Total
}

// Prices are US dollars per million tokens. A nil *Prices means unknown, and
// then the cost of a call is unknown too: zero in its Usage.
type Prices struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead,omitempty"`
	CacheWrite float64 `json:"cacheWrite,omitempty"`
	// Long holds the prices of a whole request, its output included, whose
	// prompt (input, cache reads and writes) has more than LongAbove tokens.
	// Nil when there is one price only.
	Long      *Prices `json:"long,omitempty"`
	LongAbove int64   `json:"longAbove,omitempty"`
}

// Price sets the total and, where the prices are known, the cost of u.
func (u *Usage) Price(p *Prices) {
	u.Total = u.Input + u.Output + u.CacheRead + u.CacheWrite
	if p == nil {
		return
	}
	if p.Long != nil && u.Input+u.CacheRead+u.CacheWrite > p.LongAbove {
		p = p.Long
	}
	const million = 1e6
	u.Cost = Cost{
		Input:      float64(u.Input) * p.Input / million,
		Output:     float64(u.Output) * p.Output / million,
		CacheRead:  float64(u.CacheRead) * p.CacheRead / million,
		CacheWrite: float64(u.CacheWrite) * p.CacheWrite / million,
	}
	u.Cost.Total = u.Cost.Input + u.Cost.Output + u.Cost.CacheRead + u.Cost.CacheWrite
}
