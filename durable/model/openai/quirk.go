package openai

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The keys of [model.Info.Quirks] that this package reads; the package comment
// says what they do.
const (
	QuirkMaxTokens          = "max_tokens"
	QuirkSystemRole         = "system_role"
	QuirkSystemUpdates      = "system_updates"
	QuirkStreamUsage        = "stream_usage"
	QuirkStrict             = "strict"
	QuirkEffort             = "effort"
	QuirkEffortOff          = "effort_off"
	QuirkReasoningIn        = "reasoning_in"
	QuirkReasoningOut       = "reasoning_out"
	QuirkReasoningRequired  = "reasoning_required"
	QuirkThinkTags          = "think_tags"
	QuirkToolResultName     = "tool_result_name"
	QuirkToolResultImages   = "tool_result_images"
	QuirkSummary            = "summary"
	QuirkEncryptedReasoning = "encrypted_reasoning"
	QuirkCacheKey           = "cache_key"
)

const (
	on  = "on"
	off = "off"
)

// The values of switches that are more than on and off.
const (
	maxTokensNew = "max_completion_tokens"
	maxTokensOld = "max_tokens"

	roleInstructions = "instructions"
	roleDeveloper    = "developer"
	roleSystem       = "system"
	roleUser         = "user"

	updatesInline = "inline"
	updatesFold   = "fold"

	strictOmit = "omit"

	effortWord     = "reasoning_effort"
	effortObject   = "reasoning"
	effortEnable   = "enable_thinking"
	effortTemplate = "chat_template"
	effortThinking = "thinking"

	fieldAuto      = "auto"
	fieldContent   = "reasoning_content"
	fieldReasoning = "reasoning"
	fieldNone      = "none"
)

// effortPrefix begins the keys that rename a thinking level.
const effortPrefix = "effort_"

var quirkValues = map[string][]string{
	QuirkMaxTokens:          {maxTokensNew, maxTokensOld},
	QuirkSystemRole:         {roleInstructions, roleDeveloper, roleSystem, roleUser},
	QuirkSystemUpdates:      {updatesInline, updatesFold},
	QuirkStreamUsage:        {on, off},
	QuirkStrict:             {on, off, strictOmit},
	QuirkEffort:             {effortWord, effortObject, effortEnable, effortTemplate, effortThinking, fieldNone},
	QuirkReasoningIn:        {fieldAuto, fieldContent, fieldReasoning, fieldNone},
	QuirkReasoningOut:       {fieldAuto, fieldContent, fieldReasoning, fieldNone},
	QuirkReasoningRequired:  {on, off},
	QuirkThinkTags:          {on, off},
	QuirkToolResultName:     {on, off},
	QuirkToolResultImages:   {on, off},
	QuirkSummary:            {"auto", "concise", "detailed", off},
	QuirkEncryptedReasoning: {on, off},
	QuirkCacheKey:           {on, off},
}

// CheckQuirks reports an unknown key or value, for hosts that read them from a
// file. A request ignores unknown keys and fails on an unknown value.
func CheckQuirks(quirks map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(quirks)) {
		if level, ok := strings.CutPrefix(key, effortPrefix); ok && model.ThinkingLevel(level).Valid() {
			continue
		}
		if _, known := quirkValues[key]; !known {
			return fmt.Errorf("quirk %q is unknown", key)
		}
		if err := checkQuirk(key, quirks[key]); err != nil {
			return err
		}
	}
	return nil
}

func checkQuirk(key, value string) error {
	if allowed := quirkValues[key]; value != "" && !slices.Contains(allowed, value) {
		return fmt.Errorf("quirk %s: %q is not one of %s", key, value, strings.Join(allowed, ", "))
	}
	return nil
}

// knownQuirks reports a switch of a request with an unknown value.
func knownQuirks(info *model.Info) error {
	for _, key := range slices.Sorted(maps.Keys(info.Quirks)) {
		if _, known := quirkValues[key]; !known {
			continue
		}
		if err := checkQuirk(key, info.Quirks[key]); err != nil {
			return err
		}
	}
	return nil
}

// quirks reads the switches of one request, whose values are known.
type quirks struct {
	info *model.Info
	own  bool // the request goes to OpenAI's host
}

// get returns a switch's value, def when it is not set.
func (q *quirks) get(key, def string) string {
	return cmp.Or(q.info.Quirks[key], def)
}

// is reports whether an on-off switch is on.
func (q *quirks) is(key string, def bool) bool {
	d := off
	if def {
		d = on
	}
	return q.get(key, d) == on
}

// whose returns the default for OpenAI's host or for any other.
func (q *quirks) whose(own, other string) string {
	if q.own {
		return own
	}
	return other
}

// effort returns the word for a thinking level, "" for none.
func (q *quirks) effort(l model.ThinkingLevel) string {
	if l == "" || l == model.ThinkingOff {
		return q.info.Quirks[QuirkEffortOff]
	}
	if w := q.info.Quirks[effortPrefix+string(l)]; w != "" {
		return w
	}
	return string(l)
}
