package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
)

// UsageTotals is consumption by model and by tool.
type UsageTotals struct {
	Models map[string]Usage `json:"models" doc:"By provider/model"`
	Tools  map[string]Usage `json:"tools" doc:"By name of the tool"`
}

// UsageSummary is consumption in two numbers.
type UsageSummary struct {
	Tokens int64   `json:"tokens"`
	Cost   float64 `json:"cost" doc:"US dollars; models whose prices are unknown count nothing"`
}

// UsageReport is what all conversations consumed.
type UsageReport struct {
	UsageTotals
	Summary UsageSummary `json:"summary"`
}

type usageOutput struct{ Body UsageReport }

func (s *Server) usageRoutes() {
	register(s, huma.Operation{
		OperationID: "getUsage", Method: http.MethodGet, Path: "/v1/usage", Tags: []string{tagServer},
		Summary: "What all conversations consumed",
	}, nil, func(ctx context.Context, _ *struct{}) (*usageOutput, error) {
		totals, err := s.engine.Usage(ctx)
		if err != nil {
			return nil, err
		}
		return &usageOutput{UsageReport{wireTotals(totals), summarise(&totals)}}, nil
	})
}

func wireTotals(t durable.UsageTotals) UsageTotals {
	out := UsageTotals{Models: map[string]Usage{}, Tools: map[string]Usage{}}
	for name, u := range t.Models {
		out.Models[name] = usageOf(u)
	}
	for name, u := range t.Tools {
		out.Tools[name] = usageOf(u)
	}
	return out
}

func summarise(t *durable.UsageTotals) UsageSummary {
	total := t.Total()
	return UsageSummary{Tokens: total.Total, Cost: total.Cost.Total}
}
