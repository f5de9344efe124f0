package recipes

// targetField is the key of all outputs that says where they are sent.
func targetField() field {
	return field{key: "to", goName: "To", kind: kindTarget, list: true, one: true, here: true, noDef: "the output folder", example: "['adb:/data/local/tmp/llm/']",
		doc: "Where the file goes in place of the output folder: a path, `-` for standard output, `adb:[SERIAL:]/PATH`, `ssh:[USER@]HOST[:PORT]:PATH`, `http://` and `https://` by PUT, " +
			"`flash:IMAGE?offset=..&partition-size=..`. What ends with / is a folder, in which the file keeps its name. Several are served in one pass. Unless one of them is a path, the file is sent as it is made " +
			"and never is on this machine: gates cannot look at it then. Neither lock nor manifest names a target. See [send.md](send.md)."}
}
