package modelmock

import (
	"encoding/json"
	"slices"
)

// gemini and geminiStream are Gemini's content generation. The path, not the request, determines
// whether the reply is streamed.
var (
	gemini       = dialect{read: readGemini, write: writeGemini}
	geminiStream = dialect{read: readGemini, write: streamGemini}
)

func readGemini(body []byte) (request, error) {
	var in struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				FunctionResponse json.RawMessage
			}
		}
		Tools []struct {
			FunctionDeclarations []struct {
				Name                 string
				Parameters           json.RawMessage
				ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
			}
		}
		GenerationConfig struct {
			ResponseSchema     json.RawMessage
			ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	q := request{format: either(in.GenerationConfig.ResponseSchema, in.GenerationConfig.ResponseJSONSchema)}
	for _, group := range in.Tools {
		for _, f := range group.FunctionDeclarations {
			q.tools = append(q.tools, tool{f.Name, either(f.Parameters, f.ParametersJSONSchema)})
		}
	}
	for _, c := range slices.Backward(in.Contents) {
		if c.Role == "model" {
			continue
		}
		for _, p := range slices.Backward(c.Parts) {
			if len(p.FunctionResponse) > 0 {
				q.last = part{result: true}
				return q, nil
			}
			if text, ok := userText(p.Text); ok {
				q.last = part{text: text}
				return q, nil
			}
		}
	}
	return q, nil
}

func either(a, b json.RawMessage) json.RawMessage {
	if len(a) > 0 {
		return a
	}
	return b
}

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
