package modelmock

import (
	"encoding/json"
	"strings"
)

// writeAnthropic replies as Anthropic's messages do.
func writeAnthropic(w *writer, q request, a reply) {
	usage := object{"input_tokens": 1, "output_tokens": 1}
	block, empty := object{"type": "text", "text": a.text}, object{"type": "text", "text": ""}
	delta := object{"type": "text_delta", "text": a.text}
	reason := "end_turn"
	if a.tool != "" {
		id := "toolu_" + a.id
		block = object{"type": "tool_use", "id": id, "name": a.tool, "input": json.RawMessage(a.arguments)}
		empty = object{"type": "tool_use", "id": id, "name": a.tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": a.arguments}
		reason = "tool_use"
	}
	message := object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": q.model, "stop_sequence": nil, "usage": usage,
	}
	if !q.stream {
		message["content"], message["stop_reason"] = []object{block}, reason
		w.json(message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	w.event("message_start", object{"type": "message_start", "message": message})
	w.event("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": empty})
	w.event("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta})
	w.event("content_block_stop", object{"type": "content_block_stop", "index": 0})
	w.event("message_delta", object{
		"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": usage,
	})
	w.event("message_stop", object{"type": "message_stop"})
}

// writeResponses replies as the newer of OpenAI's interfaces does.
func writeResponses(w *writer, q request, a reply) {
	item := object{
		"type": "message", "id": "msg_" + a.id, "role": "assistant", "status": "completed",
		"content": []object{{"type": "output_text", "text": a.text, "annotations": []any{}}},
	}
	if a.tool != "" {
		item = object{
			"type": "function_call", "id": "fc_" + a.id, "call_id": "call_" + a.id, "name": a.tool, "arguments": a.arguments,
			"status": "completed",
		}
		if i := strings.LastIndex(a.tool, "__"); i > 0 { // Codex has a namespace for the tools of each MCP server
			item["namespace"], item["name"] = a.tool[:i], a.tool[i+2:]
		}
	}
	response := func(status string, output ...object) object {
		return object{
			"id": "resp_" + a.id, "object": "response", "created_at": 1, "model": q.model, "status": status, "output": output,
			"usage": object{
				"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
				"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0},
			},
		}
	}
	if !q.stream {
		w.json(response("completed", item))
		return
	}
	n := 0
	send := func(name string, more object) {
		more["type"], more["sequence_number"] = name, n
		n++
		w.event(name, more)
	}
	send("response.created", object{"response": response("in_progress")})
	send("response.output_item.added", object{"output_index": 0, "item": item})
	if a.tool == "" {
		send("response.output_text.delta", object{
			"output_index": 0, "content_index": 0, "item_id": "msg_" + a.id, "delta": a.text,
		})
	}
	send("response.output_item.done", object{"output_index": 0, "item": item})
	send("response.completed", object{"response": response("completed", item)})
}

// writeChat replies as the older of OpenAI's interfaces does.
func writeChat(w *writer, q request, a reply) {
	message, reason := object{"role": "assistant", "content": a.text}, "stop"
	if a.tool != "" {
		call := object{
			"index": 0, "id": "call_" + a.id, "type": "function", "function": object{"name": a.tool, "arguments": a.arguments},
		}
		message, reason = object{"role": "assistant", "content": nil, "tool_calls": []object{call}}, "tool_calls"
	}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	completion := func(kind string, choice object) object {
		choice["index"] = 0
		return object{
			"id": "chatcmpl-" + a.id, "object": kind, "created": 1, "model": q.model, "choices": []object{choice},
			"usage": usage,
		}
	}
	if !q.stream {
		w.json(completion("chat.completion", object{"message": message, "finish_reason": reason}))
		return
	}
	const chunk = "chat.completion.chunk"
	w.event("", completion(chunk, object{"delta": message, "finish_reason": nil}))
	w.event("", completion(chunk, object{"delta": object{}, "finish_reason": reason}))
	w.line("data: [DONE]\n\n")
}

// writeGemini replies as Gemini's content generation does, and streamGemini as its stream does: the
// path of a request determines which one it is.
func writeGemini(w *writer, _ request, a reply)  { w.json(generated(a)) }
func streamGemini(w *writer, _ request, a reply) { w.event("", generated(a)) }

func generated(a reply) object {
	content := object{"text": a.text}
	if a.tool != "" {
		content = object{"functionCall": object{"id": "call-" + a.id, "name": a.tool, "args": json.RawMessage(a.arguments)}}
	}
	return object{
		"responseId": a.id,
		"candidates": []object{{
			"index": 0, "finishReason": "STOP",
			"content": object{"role": "model", "parts": []object{content}},
		}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
}
