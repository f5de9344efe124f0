package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"quern/internal/pyjson"
	"quern/pipeline"
	"quern/tokenizer"
	"quern/tokenizer/chat"
)

// chatFlags are those of commands that take a conversation for a prompt.
func chatFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "chat", Usage: "the text is what a user says: put it into the model's chat template"},
		&cli.StringFlag{Name: "system", Usage: "with --chat, what the model is told first"},
		&cli.StringFlag{Name: "messages", Usage: "take a conversation from a JSON `FILE`: a list of messages, or an object with messages, tools and further variables of the template; - reads standard input"},
		&cli.StringFlag{Name: "template", Usage: "with --chat or --messages, use the template of this `NAME`, of a model that has several"},
		&cli.StringFlag{Name: "date", Usage: "with --chat or --messages, the `DATE` that the template may show, as 2006-01-31; without it many show one of their own"},
	}
}

// wantsChat reports whether a conversation was given.
func wantsChat(c *cli.Context) bool { return c.Bool("chat") || c.IsSet("messages") }

// checkChat finds flags that go with a conversation alone, and two of them.
func checkChat(c *cli.Context) error {
	switch {
	case c.Bool("chat") && c.IsSet("messages"):
		return usagef("--chat or --messages, not both")
	case c.IsSet("system") && !c.Bool("chat"):
		return usagef("--system goes with --chat")
	case (c.IsSet("template") || c.IsSet("date")) && !wantsChat(c):
		return usagef("--template and --date go with --chat or --messages")
	}
	return nil
}

// chatPrompt renders the conversation that the flags describe; said is what the
// user says with --chat.
func chatPrompt(c *cli.Context, tok any, said string) (string, []int32, error) {
	t, ok := tok.(*tokenizer.Tokenizer)
	if !ok {
		return "", nil, usagef("the model has no chat template")
	}
	source := t.ChatTemplate()
	if name := c.String("template"); name != "" {
		if source, ok = t.NamedTemplate(name); !ok {
			return "", nil, usagef("--template %s: the model has no template of that name", name)
		}
	}
	if source == "" {
		return "", nil, usagef("the model has no chat template; --prompt TEXT goes on from a text as it is")
	}
	in := chat.Input{Generate: true, Variables: map[string]any{}}
	for _, name := range []string{"bos", "eos", "unk", "pad", "sep", "mask"} {
		if id, ok := t.ID(name); ok {
			in.Variables[name+"_token"] = t.Piece(id, true)
		}
	}
	if d := c.String("date"); d != "" {
		var err error
		if in.Now, err = time.Parse(time.DateOnly, d); err != nil {
			return "", nil, usagef("--date %s: a day as 2006-01-31", d)
		}
	}
	if c.Bool("chat") {
		if c.IsSet("system") {
			in.Messages = append(in.Messages, message("system", c.String("system")))
		}
		in.Messages = append(in.Messages, message("user", said))
	} else if err := readMessages(c, &in); err != nil {
		return "", nil, err
	}
	tmpl, err := chat.Parse(source)
	if err != nil {
		return "", nil, pipeline.SourceFault(err)
	}
	text, err := tmpl.Render(in)
	if err != nil {
		return "", nil, usagef("%v", err)
	}
	ids, err := t.EncodeChat(text)
	return text, ids, err
}

func message(role, content string) *pyjson.Object {
	o := &pyjson.Object{}
	o.Set("role", role)
	o.Set("content", content)
	return o
}

// readMessages reads the file of --messages.
func readMessages(c *cli.Context, in *chat.Input) error {
	name := c.String("messages")
	var b []byte
	var err error
	if name == "-" {
		b, err = io.ReadAll(c.App.Reader)
	} else {
		b, err = os.ReadFile(name)
	}
	if err != nil {
		return pipeline.SourceFault(err)
	}
	doc, err := pyjson.Parse(b)
	if err != nil {
		return pipeline.SourceFault(fmt.Errorf("%s: %w", name, err))
	}
	switch doc := doc.(type) {
	case []any:
		in.Messages = doc
		return nil
	case *pyjson.Object:
		for _, k := range doc.Keys() {
			v, _ := doc.Get(k)
			ok := true
			switch k {
			case "messages":
				in.Messages, ok = v.([]any)
			case "tools":
				in.Tools, ok = v.([]any)
				ok = ok || v == nil
			case "add_generation_prompt":
				in.Generate, ok = v.(bool)
			default:
				in.Variables[k] = v
			}
			if !ok {
				return usagef("--messages %s: %s is %s", name, k, pyjson.Kind(v))
			}
		}
		if doc.Has("messages") {
			return nil
		}
	}
	return usagef("--messages %s: a list of messages, or an object with messages", name)
}
