//go:build !wasip1

package wasmill

// Outside the host, as in `go test`, there are no settings, no state and no streams.

const outside = "there is no host here"

func configGet(string) (string, bool) { return "", false }

func outboxAppend(string, NewEvent) error { return &AppendError{AccessDenied, outside} }

func (b *Bucket) handle() (uint32, error) { return 0, &StateError{outside} }

func (b *Bucket) get(string) ([]byte, bool, error) { return nil, false, &StateError{outside} }

func (b *Bucket) getMany([]string) ([][]byte, error) { return nil, &StateError{outside} }

func (b *Bucket) exists(string) (bool, error) { return false, &StateError{outside} }

func (b *Bucket) set(string, []byte) error { return &StateError{outside} }

func (b *Bucket) setMany(map[string][]byte) error { return &StateError{outside} }

func (b *Bucket) deleteMany([]string) error { return &StateError{outside} }

func (b *Bucket) increment(string, uint64) (uint64, error) { return 0, &StateError{outside} }

func (b *Bucket) keys(*uint64) ([]string, *uint64, error) { return nil, nil, &StateError{outside} }
