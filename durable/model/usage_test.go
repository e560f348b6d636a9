package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage_Price(t *testing.T) {
	t.Parallel()
	prices := &Prices{
		Input: 1, Output: 10, CacheRead: 0.1, CacheWrite: 2,
		LongAbove: 1_000_000,
		Long:      &Prices{Input: 5, Output: 50, CacheRead: 0.5, CacheWrite: 10},
	}
	tests := []struct {
		name string
		in   Usage
		p    *Prices
		want Cost
	}{
		{"each kind of token has its price", Usage{Input: 500_000, Output: 100_000, CacheRead: 400_000, CacheWrite: 100_000}, prices,
			Cost{Input: 0.5, Output: 1, CacheRead: 0.04, CacheWrite: 0.2, Total: 1.74}},
		{"a long prompt has its own prices, for the output too", Usage{Input: 500_000, Output: 100_000, CacheRead: 400_000, CacheWrite: 100_001}, prices,
			Cost{Input: 2.5, Output: 5, CacheRead: 0.2, CacheWrite: 1.00001, Total: 8.70001}},
		{"unknown prices leave the cost unknown", Usage{Input: 5}, nil, Cost{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := tt.in
			u.Price(tt.p)
			require.Equal(t, tt.in.Input+tt.in.Output+tt.in.CacheRead+tt.in.CacheWrite, u.Total)
			require.InDelta(t, tt.want.Input, u.Cost.Input, 1e-9)
			require.InDelta(t, tt.want.Output, u.Cost.Output, 1e-9)
			require.InDelta(t, tt.want.CacheRead, u.Cost.CacheRead, 1e-9)
			require.InDelta(t, tt.want.CacheWrite, u.Cost.CacheWrite, 1e-9)
			require.InDelta(t, tt.want.Total, u.Cost.Total, 1e-9)
		})
	}
}
