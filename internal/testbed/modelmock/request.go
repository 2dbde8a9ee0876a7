package modelmock

import (
	"encoding/json"
	"slices"
)

// requestBody is a request of any interface: each has its own names for the same things, so that
// most fields are empty.
type requestBody struct {
	Model    string
	Stream   bool
	Messages []message       // messages and chat completions
	Input    json.RawMessage // responses: a text, or a list of messages
	Contents []message       // Gemini
	Tools    []declaration
	// The JSON schema of the reply.
	OutputConfig struct {
		Format struct{ Schema json.RawMessage }
	} `json:"output_config"`
	Text struct {
		Format struct{ Schema json.RawMessage }
	}
	ResponseFormat struct {
		JSONSchema struct{ Schema json.RawMessage } `json:"json_schema"`
	} `json:"response_format"`
	GenerationConfig struct {
		ResponseSchema     json.RawMessage
		ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
	}
}

// message is a message of a conversation, or the result of a tool. Its content is a text or a list
// of blocks; Gemini calls it parts.
type message struct {
	Type, Role     string
	Content, Parts json.RawMessage
}

// declaration declares a tool. Chat completions and Gemini nest them.
type declaration struct {
	Name                 string
	InputSchema          json.RawMessage `json:"input_schema"`
	Parameters           json.RawMessage
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
	Function             *declaration
	FunctionDeclarations []declaration
}

func readRequest(body []byte) (request, error) {
	var in requestBody
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	q := request{
		model: in.Model, stream: in.Stream, tools: toolsIn(in.Tools), body: string(body),
		format: first(in.OutputConfig.Format.Schema, in.Text.Format.Schema, in.ResponseFormat.JSONSchema.Schema,
			in.GenerationConfig.ResponseSchema, in.GenerationConfig.ResponseJSONSchema),
	}
	var input []message
	if len(in.Input) > 0 && json.Unmarshal(in.Input, &input) != nil {
		input = []message{{Role: "user", Content: in.Input}}
	}
	for _, m := range slices.Backward(slices.Concat(in.Messages, input, in.Contents)) {
		if last, ok := m.lastPart(); ok {
			q.last = last
			break
		}
	}
	return q, nil
}

func toolsIn(declarations []declaration) (tools []tool) {
	for _, d := range declarations {
		if d.Function != nil {
			d = *d.Function
		}
		tools = append(tools, tool{d.Name, first(d.InputSchema, d.Parameters, d.ParametersJSONSchema)})
		tools = append(tools, toolsIn(d.FunctionDeclarations)...)
	}
	return tools
}

// first returns the first value that is not empty.
func first(values ...json.RawMessage) json.RawMessage {
	for _, v := range values {
		if len(v) > 0 {
			return v
		}
	}
	return nil
}

// lastPart returns the last part of a message that is a user's text or a tool result. A string is
// equivalent to a list with one text.
func (m message) lastPart() (part, bool) {
	if m.Role == "tool" || m.Type == "function_call_output" || m.Type == "custom_tool_call_output" {
		return part{result: true}, true
	}
	if m.Role != "user" && (len(m.Parts) == 0 || m.Role == "model") {
		return part{}, false
	}
	content := first(m.Content, m.Parts)
	var text string
	if json.Unmarshal(content, &text) == nil {
		text, ok := userText(text)
		return part{text: text}, ok
	}
	var blocks []struct {
		Type, Text       string
		FunctionResponse json.RawMessage
	}
	if json.Unmarshal(content, &blocks) != nil {
		return part{}, false
	}
	for _, b := range slices.Backward(blocks) {
		if b.Type == "tool_result" || len(b.FunctionResponse) > 0 {
			return part{result: true}, true
		}
		if text, ok := userText(b.Text); ok {
			return part{text: text}, true
		}
	}
	return part{}, false
}
