package wasmill

import "unsafe"

// While the host puts arguments and results into this module's memory, by calling `cabi_realloc`, the
// module must not call the host. Go's allocator does: it may start a collection, which reads the clock.
// So this memory is none of the collector's. It is taken in regions from the runtime's own source of
// memory, and is free again as soon as what is in it was copied into Go values. Regions are kept: a module
// has as much of this memory as its largest event needed.
//
// What the host calls is nosplit, and so never runs the scheduler.

type region struct{ start, size uintptr }

var (
	regions     [32]region
	regionCount int
	// The region that is in use, and how much of it.
	regionNow  int
	regionUsed uintptr
)

const regionMin = 64 << 10

//go:wasmexport cabi_realloc
//go:nosplit
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	fresh := allocate(uintptr(size), uintptr(align))
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(fresh), size), unsafe.Slice((*byte)(old), oldSize))
	}
	return fresh
}

// The adapter between WASI 0.1 and 0.2 asks once for memory of its own, early in the start of Go.
//
//go:wasmexport cabi_realloc_adapter
//go:nosplit
func cabiReallocAdapter(_ unsafe.Pointer, _, _, size uint32) unsafe.Pointer {
	return sbrk(uintptr(size))
}

//go:nosplit
func allocate(size, align uintptr) unsafe.Pointer {
	for regionNow < regionCount {
		region := &regions[regionNow]
		begin := (regionUsed + align - 1) &^ (align - 1)
		if begin+size <= region.size {
			regionUsed = begin + size
			return unsafe.Add(nil, region.start+begin)
		}
		regionNow++
		regionUsed = 0
	}
	if regionCount == len(regions) {
		trap()
	}
	wanted := max(size, regionMin)
	if regionCount > 0 {
		wanted = max(wanted, 2*regions[regionCount-1].size)
	}
	start := sbrk(wanted)
	if start == nil {
		trap()
	}
	regions[regionCount] = region{uintptr(start), wanted}
	regionCount++
	regionUsed = size
	return start
}

// How many are about to copy what the host wrote.
var holders int

// hold keeps what the host has written, and will write, until release.
func hold() { holders++ }

// release frees all that the host has written, once no one needs it.
func release() {
	holders--
	if holders == 0 {
		regionNow, regionUsed = 0, 0
	}
}

// sbrk takes memory from where Go's runtime takes its own, so that neither takes the other's.
//
//go:linkname sbrk runtime.sbrk
func sbrk(size uintptr) unsafe.Pointer
