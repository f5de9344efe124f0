package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	"quern/runtime/load"
	"quern/tokenizer"
)

func tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name:        "tokenize",
		Usage:       "cut a text into the tokens of a model",
		ArgsUsage:   "FILE|FOLDER TEXT",
		Description: "Prints the ids between commas, with what the vocabulary puts before and behind a text.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "take the text from a `FILE`; - reads standard input"},
			&cli.BoolFlag{Name: "plain", Usage: "put nothing before and behind the text"},
			&cli.BoolFlag{Name: "special", Usage: "take the texts of special tokens in the text for these"},
			&cli.BoolFlag{Name: "pieces", Usage: "print a token a line, with what it stands for"},
			&cli.BoolFlag{Name: "render", Usage: "with --chat or --messages, print what the chat template makes of the conversation instead of its tokens"},
			jsonFlag(),
		}, chatFlags()),
		Action: runTokenize,
	}
}

// tokenizeDoc is the document of quern tokenize --json.
type tokenizeDoc struct {
	Model string `json:"model"`
	// Rendered is what the chat template made of a conversation.
	Rendered string   `json:"text,omitempty"`
	Tokens   []int32  `json:"tokens"`
	Pieces   []string `json:"pieces"`
}

func runTokenize(c *cli.Context) error {
	args := c.Args().Slice()
	var text string
	if err := checkChat(c); err != nil {
		return err
	}
	if c.Bool("render") && !wantsChat(c) {
		return usagef("tokenize: --render goes with --chat or --messages")
	}
	switch {
	case len(args) == 1 && c.IsSet("messages") && !c.IsSet("file"):
	case c.IsSet("messages"):
		return usagef("tokenize: a text or --messages, not both")
	case len(args) == 1 && c.IsSet("file"):
		b, err := readText(c, "file")
		if err != nil {
			return err
		}
		text = string(b)
	case len(args) == 2 && !c.IsSet("file"):
		text = args[1]
	default:
		return usagef("tokenize: a model and a text, or a model and --file; quern tokenize --help")
	}
	tok, err := load.Tokenizer(c.Context, args[0])
	if err != nil {
		return pipeline.SourceFault(err)
	}
	var rendered string
	var ids []int32
	if wantsChat(c) {
		rendered, ids, err = chatPrompt(c, tok, text)
	} else {
		ids, err = tok.Encode(text, tokenizer.EncodeOptions{Special: !c.Bool("plain"), Parse: c.Bool("special")})
	}
	if err != nil {
		return err
	}
	if c.Bool("render") && !c.Bool("json") {
		_, err = io.WriteString(c.App.Writer, rendered)
		return err
	}
	if c.Bool("json") {
		doc := tokenizeDoc{modelName(args[0]), rendered, ids, make([]string, len(ids))}
		for i, id := range ids {
			doc.Pieces[i] = tok.Piece(id, true)
		}
		return printJSON(c, doc)
	}
	if c.Bool("pieces") {
		return tokenList(c.App.Writer, tok, ids)
	}
	_, err = fmt.Fprintln(c.App.Writer, joinIDs(ids))
	return err
}
