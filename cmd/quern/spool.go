package main

import (
	"fmt"
	"text/tabwriter"

	"quern/hub"
)

// spoolListing is the document of quern store ls --spool --json.
type spoolListing struct {
	Snapshots []spoolSnapshot `json:"snapshots"`
	Entries   []spoolEntry    `json:"entries"`
}

// spoolSnapshot is a commit that some files were fetched of.
type spoolSnapshot struct {
	Repo     string   `json:"repo"`
	Revision string   `json:"revision"`
	Commit   string   `json:"commit"`
	Files    int      `json:"files"`
	Done     int      `json:"done"`
	Need     int64    `json:"bytes_needed"`
	Have     int64    `json:"bytes"`
	Missing  []string `json:"missing"`
}

// spoolEntry is one download.
type spoolEntry struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	State string `json:"state"`
	Size  int64  `json:"size"`
	Have  int64  `json:"bytes"`
}

func spoolEntries(list []hub.SpoolEntry) []spoolEntry {
	out := make([]spoolEntry, 0, len(list))
	for _, x := range list {
		state := "whole"
		switch {
		case x.Bad:
			state = "damaged, kept as evidence"
		case x.Have < x.Size:
			state = "partial"
		}
		out = append(out, spoolEntry{Name: x.Name, What: x.What, State: state, Size: x.Size, Have: x.Have})
	}
	return out
}

func spoolList(s *storeContext) error {
	l, err := hub.ListSpool(s.s.SpoolDir())
	if err != nil {
		return err
	}
	doc := spoolListing{Snapshots: []spoolSnapshot{}, Entries: spoolEntries(l.Entries)}
	for _, x := range l.Snapshots {
		doc.Snapshots = append(doc.Snapshots, spoolSnapshot{x.Repo, x.Revision, x.Commit, x.Files, x.Done, x.Need, x.Have, append([]string{}, x.Missing...)})
	}
	if s.Bool("json") {
		return printJSON(s.Context, doc)
	}
	t := tabwriter.NewWriter(s.App.Writer, 0, 0, 2, ' ', 0)
	for _, x := range l.Snapshots {
		fmt.Fprintf(t, "%s@%s\t%s\t%s\t%d of %d bytes\n", x.Repo, x.Revision, x.Commit, x.Status(), x.Have, x.Need)
	}
	for _, x := range doc.Entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d of %d bytes\n", x.What, x.Name, x.State, x.Have, x.Size)
	}
	return t.Flush()
}
