package wasmill

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"structs"
	"sync"
	"time"
	"unsafe"
)

// This file is the wire between Go and the host: the canonical ABI of the world in `wit/`, by hand.
// WIT.sha256 names the text of that world for which it was written.
//
// What the host writes is in memory of memory_wasip1.go, and has to be copied between hold and release.
// Whatever allocates may let another goroutine run, and that one may call the host, too: so a result is
// taken from the variable `result` at once.

// Where the host puts results, and where it reads the answer. They are globals, since the stack of a
// goroutine may move.
var (
	result   results
	answered reply
	reason   string
)

// results has room for the results of any import.
type results struct {
	_    structs.HostLayout
	_    [0]uint64
	word [8]uint32
}

// text is a string or a list: where it begins, and how many elements it has.
type text struct {
	_           structs.HostLayout
	start, size uint32
}

// copy is what it holds as bytes; never nil.
func (t text) copy() []byte { return append([]byte{}, list[byte](t)...) }

type optionalText struct {
	_    structs.HostLayout
	some uint8
	text text
}

type pair struct {
	_          structs.HostLayout
	key, value text
}

type optionalPair struct {
	_    structs.HostLayout
	some uint8
	pair pair
}

// call is what the host gives to `handle`: an event and its delivery.
type call struct {
	_              structs.HostLayout
	id             text
	stream         text
	partition      uint32
	sequence       uint64
	timestamp      text
	hasTimestampMs uint8
	timestampMs    int64
	key            optionalText
	eventType      optionalText
	metadata       text
	payload        text
	pipeline       text
	group          text
	attempt        uint32
	maxAttempts    uint32
	timeoutMs      uint32
}

// reply is what `handle` returns.
type reply struct {
	_         structs.HostLayout
	isFailure uint8
	isReject  uint32
	reason    text
	hasDelay  uint8
	delayMs   uint32
}

// The sizes that the canonical ABI prescribes.
var (
	_ [128]byte = [unsafe.Sizeof(call{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(reply{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(pair{})]byte{}
	_ [20]byte  = [unsafe.Sizeof(optionalPair{})]byte{}
)

//go:wasmimport wasi:config/store@0.2.0-rc.1 get
func importConfigGet(key string, result *results)

//go:wasmimport wasi:logging/logging@0.1.0-draft log
func importLog(level uint32, context, message string)

//go:wasmimport wasmill:handler/outbox@0.1.0 append
func importAppend(stream string, hasType uint32, eventType string, hasKey uint32, key string,
	hasPartition, partition uint32, metadata *pair, metadataSize uint32, payload *byte, payloadSize uint32,
	result *results)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft open
func importOpen(name string, result *results)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft [resource-drop]bucket
func importDrop(bucket uint32)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft [method]bucket.get
func importGet(bucket uint32, key string, result *results)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft [method]bucket.set
func importSet(bucket uint32, key string, value *byte, valueSize uint32, result *results)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft [method]bucket.exists
func importExists(bucket uint32, key string, result *results)

//go:wasmimport wasi:keyvalue/store@0.2.0-draft [method]bucket.list-keys
func importListKeys(bucket uint32, hasCursor uint32, cursor uint64, result *results)

//go:wasmimport wasi:keyvalue/atomics@0.2.0-draft increment
func importIncrement(bucket uint32, key string, delta uint64, result *results)

//go:wasmimport wasi:keyvalue/batch@0.2.0-draft get-many
func importGetMany(bucket uint32, keys *text, keysSize uint32, result *results)

//go:wasmimport wasi:keyvalue/batch@0.2.0-draft set-many
func importSetMany(bucket uint32, pairs *pair, pairsSize uint32, result *results)

//go:wasmimport wasi:keyvalue/batch@0.2.0-draft delete-many
func importDeleteMany(bucket uint32, keys *text, keysSize uint32, result *results)

// Go does not call main in a module that is a library, so the first event does.
//
//go:linkname callMain main.main
func callMain()

// trap ends the instance.
func trap()

func init() {
	slog.SetDefault(slog.New(logHandler{}))
}

//go:wasmexport handle
func exportHandle(call *call) *reply {
	closeBuckets()
	event, delivery := take(call)
	err := run(event, delivery)
	if err == nil {
		answered = reply{}
		return &answered
	}
	answer := answerOf(err)
	if answer.unexpected {
		logMessage(levelError, "", answer.reason)
	}
	reason = answer.reason
	answered = reply{
		isFailure: 1,
		isReject:  flag(answer.reject),
		reason:    text{start: uint32(uintptr(unsafe.Pointer(unsafe.StringData(reason)))), size: uint32(len(reason))},
		hasDelay:  uint8(flag(answer.hasDelay)),
		delayMs:   answer.delayMs,
	}
	return &answered
}

func run(event Event, delivery Delivery) (err error) {
	returned := false
	defer func() {
		if !returned {
			die(recover())
		}
	}()
	if handler == nil {
		callMain()
	}
	if handler == nil {
		panic("there is no handler: call wasmill.Handle in main")
	}
	err = handler(event, delivery)
	returned = true
	return err
}

// die ends the instance after a panic. What was wrong is said last and at a higher level than the stack:
// the host puts a guest's last words into the fault's message.
func die(cause any) {
	stack := string(debug.Stack())
	if _, below, ok := strings.Cut(stack, "\npanic("); ok {
		stack = "panic(" + below
	}
	logMessage(levelWarn, "panic", strings.TrimSpace(stack))
	if cause == nil {
		cause = "the handler called runtime.Goexit"
	}
	logMessage(levelCritical, "panic", fmt.Sprintf("panic: %v", cause))
	trap()
}

// take copies an event out of the memory that the host wrote it to. Texts share one piece of memory, and
// the payload has its own: who keeps an id does not keep the payload.
func take(call *call) (Event, Delivery) {
	hold()
	defer release()
	pairs := list[pair](call.metadata)
	texts := []text{
		call.id, call.stream, call.timestamp, call.key.text, call.eventType.text, call.pipeline, call.group,
	}
	if call.key.some == 0 {
		texts[3] = text{}
	}
	if call.eventType.some == 0 {
		texts[4] = text{}
	}
	size := 0
	for _, text := range texts {
		size += int(text.size)
	}
	for _, pair := range pairs {
		size += int(pair.key.size) + int(pair.value.size)
	}
	memory := make([]byte, 0, size)
	next := func(text text) string {
		begin := len(memory)
		memory = append(memory, list[byte](text)...)
		return unsafe.String(unsafe.SliceData(memory[begin:]), int(text.size))
	}
	event := Event{
		ID:        next(texts[0]),
		Stream:    next(texts[1]),
		Partition: int(call.partition),
		Sequence:  int64(call.sequence),
		Timestamp: next(texts[2]),
		Key:       next(texts[3]),
		HasKey:    call.key.some != 0,
		Type:      next(texts[4]),
		HasType:   call.eventType.some != 0,
		Metadata:  make(map[string]string, len(pairs)),
		Payload:   call.payload.copy(),
	}
	if call.hasTimestampMs != 0 {
		event.Time = time.UnixMilli(call.timestampMs).UTC()
	}
	delivery := Delivery{
		Pipeline:    next(texts[5]),
		Group:       next(texts[6]),
		Attempt:     int(call.attempt),
		MaxAttempts: int(call.maxAttempts),
		Timeout:     time.Duration(call.timeoutMs) * time.Millisecond,
	}
	for _, pair := range pairs {
		event.Metadata[next(pair.key)] = next(pair.value)
	}
	return event, delivery
}

func configGet(key string) (string, bool) {
	hold()
	defer release()
	importConfigGet(key, &result)
	found := result
	if found.failed() || found.tag(1) == 0 {
		return "", false
	}
	return found.string(2), true
}

func logMessage(level uint32, context, message string) {
	importLog(level, context, message)
}

func outboxAppend(stream string, event NewEvent) error {
	var keep kept
	var metadata []pair
	for key, value := range event.Metadata {
		metadata = append(metadata, pair{key: keep.string(key), value: keep.string(value)})
	}
	partition := 0
	if event.Partition != nil {
		partition = *event.Partition
	}
	if partition < 0 || int(uint32(partition)) != partition {
		return &AppendError{Invalid, fmt.Sprintf("there is no partition %d", partition)}
	}
	hold()
	defer release()
	importAppend(stream, flag(event.Type != ""), event.Type, flag(event.Key != ""), event.Key,
		flag(event.Partition != nil), uint32(partition), unsafe.SliceData(metadata), uint32(len(metadata)),
		unsafe.SliceData(event.Payload), uint32(len(event.Payload)), &result)
	answer := result
	keep.end()
	if !answer.failed() {
		return nil
	}
	return &AppendError{AppendErrorKind(answer.tag(1)), answer.string(2)}
}

// Buckets stay open from one event to the next, as long as they are no more than this.
const bucketsMax = 64

var (
	buckets     = map[string]uint32{}
	bucketsLock sync.Mutex
)

// closeBuckets closes them between two events, unless a goroutine that was left over is using one.
func closeBuckets() {
	if len(buckets) <= bucketsMax || holders > 0 {
		return
	}
	for _, handle := range buckets {
		importDrop(handle)
	}
	clear(buckets)
}

func (b *Bucket) handle() (uint32, error) {
	hold()
	defer release()
	bucketsLock.Lock()
	defer bucketsLock.Unlock()
	if handle, ok := buckets[b.name]; ok {
		return handle, nil
	}
	importOpen(b.name, &result)
	opened := result
	if err := opened.stateError(1); err != nil {
		return 0, err
	}
	buckets[b.name] = opened.word[1]
	return opened.word[1], nil
}

func (b *Bucket) get(key string) ([]byte, bool, error) {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return nil, false, err
	}
	importGet(handle, key, &result)
	found := result
	if err := found.stateError(1); err != nil || found.tag(1) == 0 {
		return nil, false, err
	}
	return found.text(2).copy(), true, nil
}

func (b *Bucket) getMany(keys []string) ([][]byte, error) {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return nil, err
	}
	var keep kept
	texts := keep.strings(keys)
	importGetMany(handle, unsafe.SliceData(texts), uint32(len(texts)), &result)
	answer := result
	keep.end()
	if err := answer.stateError(1); err != nil {
		return nil, err
	}
	found := list[optionalPair](answer.text(1))
	values := make([][]byte, len(found))
	for n, found := range found {
		if found.some != 0 {
			values[n] = found.pair.value.copy()
		}
	}
	return values, nil
}

func (b *Bucket) exists(key string) (bool, error) {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return false, err
	}
	importExists(handle, key, &result)
	answer := result
	return answer.tag(1) != 0, answer.stateError(1)
}

func (b *Bucket) set(key string, value []byte) error {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return err
	}
	importSet(handle, key, unsafe.SliceData(value), uint32(len(value)), &result)
	answer := result
	return answer.stateError(1)
}

func (b *Bucket) setMany(values map[string][]byte) error {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return err
	}
	var keep kept
	pairs := make([]pair, 0, len(values))
	for key, value := range values {
		pairs = append(pairs, pair{key: keep.string(key), value: keep.bytes(value)})
	}
	importSetMany(handle, unsafe.SliceData(pairs), uint32(len(pairs)), &result)
	answer := result
	keep.end()
	return answer.stateError(1)
}

func (b *Bucket) deleteMany(keys []string) error {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return err
	}
	var keep kept
	texts := keep.strings(keys)
	importDeleteMany(handle, unsafe.SliceData(texts), uint32(len(texts)), &result)
	answer := result
	keep.end()
	return answer.stateError(1)
}

func (b *Bucket) increment(key string, delta uint64) (uint64, error) {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return 0, err
	}
	importIncrement(handle, key, delta, &result)
	answer := result
	if err := answer.stateError(2); err != nil {
		return 0, err
	}
	return answer.number(2), nil
}

func (b *Bucket) keys(cursor *uint64) ([]string, *uint64, error) {
	hold()
	defer release()
	handle, err := b.handle()
	if err != nil {
		return nil, nil, err
	}
	from := uint64(0)
	if cursor != nil {
		from = *cursor
	}
	importListKeys(handle, flag(cursor != nil), from, &result)
	page := result
	if err := page.stateError(2); err != nil {
		return nil, nil, err
	}
	found := list[text](page.text(2))
	keys := make([]string, len(found))
	for n, key := range found {
		keys[n] = string(list[byte](key))
	}
	if page.tag(4) == 0 {
		return keys, nil, nil
	}
	next := page.number(6)
	return keys, &next, nil
}

func (r *results) failed() bool { return r.tag(0) != 0 }

// tag is the byte at the beginning of a word; what is behind it means nothing.
func (r *results) tag(word int) uint8 { return uint8(r.word[word]) }

func (r *results) text(word int) text { return text{start: r.word[word], size: r.word[word+1]} }

func (r *results) string(word int) string { return string(list[byte](r.text(word))) }

func (r *results) number(word int) uint64 { return uint64(r.word[word]) | uint64(r.word[word+1])<<32 }

// stateError reads the error of wasi:keyvalue, which begins at a word.
func (r *results) stateError(word int) error {
	if !r.failed() {
		return nil
	}
	switch r.tag(word) {
	case 0:
		return &StateError{"there is no such bucket"}
	case 1:
		return &StateError{"the bucket is not granted"}
	default:
		return &StateError{r.string(word + 1)}
	}
}

// list looks at a list in the memory that the host wrote.
func list[T any](t text) []T {
	return unsafe.Slice((*T)(unsafe.Add(nil, t.start)), t.size)
}

// kept holds on to what the host is given as an address in a list, up to end. Such an address is only a
// number: neither the collector nor a stack that moves knows of it.
type kept []*byte

// What is assigned to it is on the heap, and does not move.
var onHeap *byte

func (k *kept) address(first *byte) uint32 {
	onHeap = first
	*k = append(*k, first)
	return uint32(uintptr(unsafe.Pointer(first)))
}

func (k *kept) end() {
	onHeap = nil
	runtime.KeepAlive(*k)
}

func (k *kept) string(s string) text {
	return text{start: k.address(unsafe.StringData(s)), size: uint32(len(s))}
}

func (k *kept) bytes(b []byte) text {
	return text{start: k.address(unsafe.SliceData(b)), size: uint32(len(b))}
}

func (k *kept) strings(all []string) []text {
	texts := make([]text, len(all))
	for n, s := range all {
		texts[n] = k.string(s)
	}
	return texts
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}
