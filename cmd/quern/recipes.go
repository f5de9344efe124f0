package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/recipes"
	"quern/recipes/builtin"
)

func recipesCommand() *cli.Command {
	return &cli.Command{
		Name:        "recipes",
		Usage:       "list and show the built-in recipes",
		Description: "A built-in recipe is built by builtin: and its name, as in quern build builtin:minueza-32m.",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list the built-in recipes", Flags: []cli.Flag{jsonFlag()}, Action: runRecipesList},
			{Name: "show", Usage: "print a built-in recipe", ArgsUsage: "NAME", Flags: []cli.Flag{jsonFlag()}, Action: runRecipesShow},
		},
	}
}

// recipeInfo is what --json says of a built-in recipe.
type recipeInfo struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Sources []recipeFrom `json:"sources"`
	Outputs []string     `json:"outputs"`
	Text    string       `json:"text,omitempty"`
}

type recipeFrom struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Value string `json:"value"`
	Path  string `json:"path,omitempty"`
}

func aboutRecipe(name string) (*recipeInfo, error) {
	r, err := builtin.Parse(name, recipes.Options{})
	if err != nil {
		return nil, err
	}
	info := &recipeInfo{Name: name, About: builtin.About(name)}
	for _, s := range r.Sources {
		info.Sources = append(info.Sources, recipeFrom{s.Name, string(s.Kind), s.Value, s.Path})
	}
	for _, o := range r.Outputs {
		info.Outputs = append(info.Outputs, o.File)
	}
	return info, nil
}

func runRecipesList(c *cli.Context) error {
	if c.NArg() > 0 {
		return usagef("recipes ls: unexpected %q", c.Args().First())
	}
	doc := struct {
		Recipes []*recipeInfo `json:"recipes"`
	}{}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for _, name := range builtin.Names() {
		info, err := aboutRecipe(name)
		if err != nil {
			return err
		}
		doc.Recipes = append(doc.Recipes, info)
		if !c.Bool("json") {
			fmt.Fprintf(w, "%s\t%s\n", name, info.About)
		}
	}
	if c.Bool("json") {
		programOf(c).doc = doc
		return nil
	}
	return w.Flush()
}

func runRecipesShow(c *cli.Context) error {
	name, err := oneArg(c, "the name of a built-in recipe")
	if err != nil {
		return err
	}
	if bare, ok := builtin.Cut(name); ok {
		name = bare
	}
	text, err := builtin.Text(name)
	if err != nil {
		return usagef("%v", err)
	}
	if c.Bool("json") {
		info, err := aboutRecipe(name)
		if err != nil {
			return err
		}
		info.Text = string(text)
		programOf(c).doc = info
		return nil
	}
	_, err = c.App.Writer.Write(text)
	return err
}
