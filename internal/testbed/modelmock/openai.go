package modelmock

import (
	"encoding/json"
	"slices"
)

// responses and chat are OpenAI's interfaces, the newer and the older one.
var (
	responses = dialect{read: readResponses, write: writeResponses}
	chat      = dialect{read: readChat, write: writeChat}
)

func readResponses(body []byte) (request, error) {
	var in struct {
		Model  string
		Stream bool
		Input  json.RawMessage
		Tools  []struct {
			Name       string
			Parameters json.RawMessage
		}
		Text struct {
			Format struct{ Schema json.RawMessage }
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	q := request{model: in.Model, stream: in.Stream, format: in.Text.Format.Schema}
	for _, t := range in.Tools {
		q.tools = append(q.tools, tool{t.Name, t.Parameters})
	}
	q.last = lastItem(in.Input)
	return q, nil
}

// lastItem returns the last item of an input that is a user's text or a tool result. A string is
// equivalent to a list with one text.
func lastItem(input json.RawMessage) (last part) {
	var items []struct {
		Type, Role string
		Content    json.RawMessage
	}
	if json.Unmarshal(input, &items) != nil {
		last, _ = lastBlock(input)
		return last
	}
	for _, item := range slices.Backward(items) {
		if item.Type == "function_call_output" || item.Type == "custom_tool_call_output" {
			return part{result: true}
		}
		if last, ok := lastBlock(item.Content); ok && item.Role == "user" {
			return last
		}
	}
	return part{}
}

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

func readChat(body []byte) (request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
		ResponseFormat struct {
			JSONSchema struct{ Schema json.RawMessage } `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	q := request{model: in.Model, stream: in.Stream, format: in.ResponseFormat.JSONSchema.Schema}
	for _, t := range in.Tools {
		q.tools = append(q.tools, tool{t.Function.Name, t.Function.Parameters})
	}
	for _, m := range slices.Backward(in.Messages) {
		if m.Role == "tool" {
			q.last = part{result: true}
			break
		}
		if last, ok := lastBlock(m.Content); ok && m.Role == "user" {
			q.last = last
			break
		}
	}
	return q, nil
}

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
