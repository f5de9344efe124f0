package main

import (
	"bytes"
	"encoding/json"

	"github.com/urfave/cli/v2"

	"quern/recipes"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name:        "schema",
		Usage:       "print the recipe's JSON Schema for editors, or its reference",
		Description: "Editors with a YAML language server check recipes against the schema as you type:\n  # yaml-language-server: $schema=recipe.schema.json",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "markdown", Usage: "print the reference in Markdown instead"}, jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() != 0 {
				return usagef("schema: no arguments are taken")
			}
			if c.Bool("json") {
				if c.Bool("markdown") {
					return usagef("schema: --json or --markdown, not both")
				}
				var b bytes.Buffer
				if err := recipes.WriteJSONSchema(&b); err != nil {
					return err
				}
				return printJSON(c, json.RawMessage(b.Bytes()))
			}
			if c.Bool("markdown") {
				return recipes.WriteReference(c.App.Writer)
			}
			return recipes.WriteJSONSchema(c.App.Writer)
		},
	}
}
