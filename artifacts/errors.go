package artifacts

import "errors"

var (
	// ErrNotFound marks a blob, name or prefix that the store does not have.
	ErrNotFound = errors.New("not in the store")
	// ErrCorrupt marks stored bytes that are not what their digest, size or
	// format promises. The message has both values.
	ErrCorrupt = errors.New("damaged")
	// ErrMismatch marks new bytes that are not what the writer said they
	// would be: the store took nothing.
	ErrMismatch = errors.New("content differs from what was promised")
	// ErrReadOnly marks a write to a store that cannot be written to.
	ErrReadOnly = errors.New("the store is read-only")
	// ErrAmbiguous marks a digest prefix or name with several meanings.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrName marks text that cannot be a name or reference.
	ErrName = errors.New("bad name")
	// ErrManifest marks a manifest or config that breaks the rules of its
	// format.
	ErrManifest = errors.New("bad manifest")
	// ErrNoBuild marks the manifest of something else, where a build was wanted.
	ErrNoBuild = errors.New("not a quern build")
	// ErrNotStore marks a folder that is not an OCI image layout.
	ErrNotStore = errors.New("not a store")
	// ErrInUse marks work that must wait until no other process writes.
	ErrInUse = errors.New("the store is in use")
	// ErrExists marks an output that would replace something.
	ErrExists = errors.New("already exists")
	// ErrClosed marks a use of a writer after Commit or Abort.
	ErrClosed = errors.New("committed or aborted before")
)
