// Package openai speaks OpenAI's two wire formats: the Responses API, and Chat
// Completions for the many servers that offer it (Ollama, vLLM, llama.cpp,
// OpenRouter, DeepSeek and others).
//
//	openai.NewResponses(&openai.Options{APIKey: key})
//	openai.NewChat(&openai.Options{BaseURL: "http://127.0.0.1:11434/v1", KeyOptional: true})
//
// # What is sent
//
// Both keep nothing at the provider: the whole transcript is sent each time,
// as the append-only end of the body, so that the request of the next turn
// begins with the bytes of this one. An answer of the same model goes back as
// it came, from [model.Block.Raw]: the items of the Responses API byte for
// byte with their encrypted reasoning, the reasoning fields and unknown fields
// of tool calls of Chat Completions. An answer of another model goes back as
// plain text and calls.
//
// # Switches
//
// [model.Info.Quirks] adapts the requests to a model's server. "own" means
// OpenAI's host, "other" any other.
//
//	key                  API        values (default first)
//	max_tokens           chat       own: max_completion_tokens; other: max_tokens
//	system_role          chat       system, developer, user
//	                     responses  instructions, developer, system
//	system_updates       both       own: inline (a later message); other: fold (into the prompt)
//	stream_usage         chat       on, off: ask for usage in the stream
//	strict               both       chat: omit; responses: off; or on
//	effort               chat       reasoning_effort, reasoning, enable_thinking,
//	                                chat_template, thinking, none: how the thinking level is said
//	effort_off           both       word for "no thinking"; default: nothing is sent
//	effort_<level>       both       word for that level; default: its name
//	reasoning_in         chat       auto, reasoning_content, reasoning, none: where thinking is read
//	reasoning_out        chat       auto (as it came), reasoning_content, reasoning, none
//	reasoning_required   chat       off, on: every answer that is sent back has the field
//	think_tags           chat       off, on: a leading <think>…</think> is thinking
//	tool_result_name     chat       off, on: results name their tool
//	tool_result_images   both       chat: off; responses: on. off: a user message after all results
//	summary              responses  auto, concise, detailed, off: thinking that is shown
//	encrypted_reasoning  responses  on, off; default on for models with thinking levels
//	cache_key            both       own: on; other: off. SessionID as prompt_cache_key
//
// The package depends on the standard library, durable/model and its internal
// wire package alone.
package openai
