package wasmill

// A Bucket holds keys and values that outlive a call.
//
// Writes are committed with the acknowledgement of the handled event, in the same atomic step, or not at
// all; reads see the call's own writes. If what a call has read was changed by another commit meanwhile,
// the host runs the handler again on fresh state: so reading, computing and writing back is safe.
//
// A key has 1 to 1,024 bytes, a value at most 1 MiB. Errors of a bucket are [StateError]s: the store did
// not answer, a key or a value is too long, or the call has touched too much state. A handler can return
// one as it is: it is a retry.
type Bucket struct {
	name string
}

// OpenBucket opens the bucket of this name (letters, digits, `.`, `_` and `-`): one of the pipeline's
// own, or one that the operator maps to a shared one (`buckets`). Nothing has to be closed.
func OpenBucket(name string) (*Bucket, error) {
	bucket := &Bucket{name}
	_, err := bucket.handle()
	if err != nil {
		return nil, err
	}
	return bucket, nil
}

// Get returns the value of a key, and whether it has one.
func (b *Bucket) Get(key string) ([]byte, bool, error) { return b.get(key) }

// GetMany returns the values of keys, in the order asked for: one question to the store for all of them.
// A key without a value has nil; an empty value is not nil.
func (b *Bucket) GetMany(keys ...string) ([][]byte, error) { return b.getMany(keys) }

// Exists tells whether a key has a value.
func (b *Bucket) Exists(key string) (bool, error) { return b.exists(key) }

// Set sets the value of a key.
func (b *Bucket) Set(key string, value []byte) error { return b.set(key, value) }

// SetMany sets the values of keys. If it fails, some of them may be set.
func (b *Bucket) SetMany(values map[string][]byte) error { return b.setMany(values) }

// Delete removes keys; one that is not there is no error.
func (b *Bucket) Delete(keys ...string) error { return b.deleteMany(keys) }

// Increment adds to a number, and returns the sum. A key without a value counts as zero; the number is
// kept as decimal text.
func (b *Bucket) Increment(key string, delta uint64) (uint64, error) { return b.increment(key, delta) }

// Keys returns a page of the bucket's keys, as the store has them: the call's own writes are not among
// them, and the list is not checked again when the call commits. Begin with nil, and go on with the
// cursor of the page before, until there is none.
func (b *Bucket) Keys(cursor *uint64) (keys []string, next *uint64, err error) { return b.keys(cursor) }

// A StateError says what went wrong with a bucket.
type StateError struct {
	// Text is the host's explanation.
	Text string
}

func (e *StateError) Error() string { return e.Text }

// Unwrap makes it a [RetryError]: trouble with state may pass.
func (e *StateError) Unwrap() error { return Retry(e.Text) }
