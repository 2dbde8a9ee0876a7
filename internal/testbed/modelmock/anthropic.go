package modelmock

import (
	"encoding/json"
	"slices"
)

// anthropic is the messages interface.
var anthropic = dialect{read: readAnthropic, write: writeAnthropic}

func readAnthropic(body []byte) (request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []struct {
			Name        string
			InputSchema json.RawMessage `json:"input_schema"`
		}
		OutputConfig struct {
			Format struct{ Schema json.RawMessage }
		} `json:"output_config"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	q := request{model: in.Model, stream: in.Stream, format: in.OutputConfig.Format.Schema}
	for _, t := range in.Tools {
		q.tools = append(q.tools, tool{t.Name, t.InputSchema})
	}
	for _, m := range slices.Backward(in.Messages) {
		if m.Role != "user" {
			continue
		}
		if last, ok := lastBlock(m.Content); ok {
			q.last = last
			break
		}
	}
	return q, nil
}

// lastBlock returns the last block of a message that is a user's text or a tool result. A string is
// equivalent to a list with one text.
func lastBlock(content json.RawMessage) (part, bool) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		text, ok := userText(text)
		return part{text: text}, ok
	}
	var blocks []struct{ Type, Text string }
	if json.Unmarshal(content, &blocks) != nil {
		return part{}, false
	}
	for _, b := range slices.Backward(blocks) {
		if b.Type == "tool_result" {
			return part{result: true}, true
		}
		if text, ok := userText(b.Text); ok {
			return part{text: text}, true
		}
	}
	return part{}, false
}

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
