package anthropic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of [model.Info.Quirks] that this package reads; the package comment
// says what they do.
const (
	QuirkThinking      = "thinking"
	QuirkThinkingOff   = "thinking_off"
	QuirkSystemUpdates = "system_updates"
	QuirkCache         = "cache"
	QuirkEagerTools    = "eager_tools"
)

// The values of the switches.
const (
	thinkingAdaptive = "adaptive"
	thinkingBudget   = "budget"

	offOmit         = "omit"
	offDisabled     = "disabled"
	offBetweenTools = "between_tools"
	offAlways       = "always"

	updatesFold   = "fold"
	updatesInline = "inline"

	cacheBlocks = "blocks"
	cacheAuto   = "auto"

	on  = "on"
	off = "off"
)

// quirkValues holds the values of each key, the default first.
var quirkValues = map[string][]string{
	QuirkThinking:      {thinkingAdaptive, thinkingBudget},
	QuirkThinkingOff:   {offOmit, offDisabled, offBetweenTools, offAlways},
	QuirkSystemUpdates: {updatesFold, updatesInline},
	QuirkCache:         {cacheBlocks, cacheAuto, off},
	QuirkEagerTools:    {off, on},
}

// CheckQuirks reports an unknown key or value, for hosts that read them from a
// file. A request ignores unknown keys and fails on an unknown value.
func CheckQuirks(quirks map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(quirks)) {
		values, known := quirkValues[key]
		if !known {
			return fmt.Errorf("quirk %q is unknown", key)
		}
		if !slices.Contains(values, quirks[key]) {
			return fmt.Errorf("quirk %s: %q is not one of %s", key, quirks[key], strings.Join(values, ", "))
		}
	}
	return nil
}

// switches are the quirks of a model with their defaults.
type switches struct {
	thinking, thinkingOff, systemUpdates, cache, eagerTools string
}

func switchesOf(quirks map[string]string) (switches, error) {
	known := make(map[string]string, len(quirkValues))
	for key, values := range quirkValues {
		known[key] = values[0]
		if v := quirks[key]; v != "" {
			known[key] = v
		}
	}
	return switches{
		thinking: known[QuirkThinking], thinkingOff: known[QuirkThinkingOff],
		systemUpdates: known[QuirkSystemUpdates], cache: known[QuirkCache], eagerTools: known[QuirkEagerTools],
	}, CheckQuirks(known)
}
