//go:build race

package all_test

// racing says that the race detector is on, which makes tests ten times slower:
// those that compare bytes then leave out the models with large vocabularies.
const racing = true
