package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

type (
	fauxScriptInput struct{ Body json.RawMessage }
	fauxPending     struct {
		Pending int `json:"pending"`
	}
	fauxScriptOutput struct{ Body fauxPending }
	fauxRequests     struct {
		Items []faux.View `json:"items"`
	}
	fauxRequestsOutput struct{ Body json.RawMessage }
)

// fauxRoutes adds the routes that script the faux provider (S9). They are not
// part of the document.
func (s *Server) fauxRoutes() {
	register(s, huma.Operation{
		OperationID: "addFauxResponses", Method: http.MethodPost, Path: "/v1/test/faux/responses", Hidden: true,
	}, nil, func(_ context.Context, in *fauxScriptInput) (*fauxScriptOutput, error) {
		script, err := faux.ParseScript(in.Body)
		if err != nil {
			return nil, web.Invalid("body", err.Error())
		}
		if err := s.opts.Faux.Load(script); err != nil {
			return nil, web.Invalid("body", err.Error())
		}
		return &fauxScriptOutput{fauxPending{s.opts.Faux.Pending()}}, nil
	})
	register(s, huma.Operation{
		OperationID: "listFauxRequests", Method: http.MethodGet, Path: "/v1/test/faux/requests", Hidden: true,
	}, nil, func(context.Context, *struct{}) (*fauxRequestsOutput, error) {
		out := fauxRequests{Items: []faux.View{}}
		for _, req := range s.opts.Faux.Requests() {
			out.Items = append(out.Items, faux.NewView(req))
		}
		return &fauxRequestsOutput{s.encode(out)}, nil
	})
}
