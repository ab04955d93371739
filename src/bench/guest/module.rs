//! The guests' core modules, instruction by instruction.
//!
//! A guest has one memory: first what calls answer, then its constants, then the heap, where the host
//! places what it hands over of an event, piece after piece. The next call begins there anew, so a guest
//! never grows beyond its largest event.

use std::time::Duration;

use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, GlobalSection, GlobalType, ImportSection, InstructionSink, MemArg, MemorySection,
    MemoryType, Module, TypeSection, ValType,
};

use super::Work;

/// Where the answer of `handle` stands. All of it is zero, which means: well.
const ANSWER: i32 = 16;

/// Where the host's functions answer; none of their answers is longer than 16 bytes.
const REPLY: i32 = 64;

/// Where a handler with effects puts the key that it writes.
const KEY: i32 = 96;

/// Where the constants begin.
const CONSTANTS: i32 = 128;

/// Where the event's sequence stands in the arguments of `handle`: behind two texts and a number.
const SEQUENCE: u64 = 24;

/// log2 of the bytes of a page of memory.
const PAGE_BITS: i32 = 16;

const CLOCK: &str = "wasi:clocks/monotonic-clock@0.2.0";
const POLL: &str = "wasi:io/poll@0.2.0";
const OUTBOX: &str = "wasmill:handler/outbox@0.1.0";
const STORE: &str = "wasi:keyvalue/store@0.2.0-draft";

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;

/// A function of the host: its interface, its name, and its type in the canonical ABI.
struct Import(&'static str, &'static str, &'static [ValType], &'static [ValType]);

/// A guest that does this work.
pub(super) fn working(work: &Work) -> Vec<u8> {
    match work {
        Work::Nothing => module(&[], &[], |_, _| {}),
        Work::Compute(time) => computing(*time),
        Work::Wait(time) => waiting(*time),
        Work::Effects { stream, bucket, payload } => with_effects(stream.as_str(), bucket, payload),
    }
}

/// Looks at the clock until it shows that the time is over.
fn computing(time: Duration) -> Vec<u8> {
    let imports = [Import(CLOCK, "now", &[], &[I64])];
    module(&imports, &[], |body, _| {
        let end = 1;
        body.call(0).i64_const(nanos(time)).i64_add().local_set(end);
        body.loop_(BlockType::Empty).call(0).local_get(end).i64_lt_u().br_if(0).end();
    })
}

/// Sleeps once.
fn waiting(time: Duration) -> Vec<u8> {
    let imports = [
        Import(CLOCK, "subscribe-duration", &[I64], &[I32]),
        Import(POLL, "[method]pollable.block", &[I32], &[]),
        Import(POLL, "[resource-drop]pollable", &[I32], &[]),
    ];
    module(&imports, &[], |body, _| {
        let timer = 2;
        body.i64_const(nanos(time)).call(0).local_tee(timer).call(1).local_get(timer).call(2);
    })
}

/// Appends an event and writes a key. It traps where the host refuses either.
fn with_effects(stream: &str, bucket: &str, payload: &str) -> Vec<u8> {
    let imports = [
        Import(OUTBOX, "append", &[I32; 15], &[]),
        Import(STORE, "open", &[I32; 3], &[]),
        Import(STORE, "[method]bucket.set", &[I32; 6], &[]),
        Import(STORE, "[resource-drop]bucket", &[I32], &[]),
    ];
    module(&imports, &[stream, bucket, payload], |body, constants| {
        let (arguments, handle) = (0, 2);
        let byte = MemArg { offset: 0, align: 0, memory_index: 0 };
        let text = |body: &mut InstructionSink<'_>, number: usize| {
            let (at, bytes) = constants[number];
            body.i32_const(at).i32_const(bytes);
        };
        let well = |body: &mut InstructionSink<'_>| {
            body.i32_const(REPLY).i32_load8_u(byte).if_(BlockType::Empty).unreachable().end();
        };
        // The key: the character `0` and those behind it.
        body.i32_const(KEY);
        body.local_get(arguments).i64_load(MemArg { offset: SEQUENCE, align: 3, memory_index: 0 });
        body.i32_wrap_i64().i32_const(63).i32_and().i32_const(i32::from(b'0')).i32_add().i32_store8(byte);
        // append(stream, { type: none, key: some(key), partition: none, metadata: [], payload })
        text(body, 0);
        body.i32_const(0).i32_const(0).i32_const(0);
        body.i32_const(1).i32_const(KEY).i32_const(1);
        body.i32_const(0).i32_const(0);
        body.i32_const(0).i32_const(0);
        text(body, 2);
        body.i32_const(REPLY).call(0);
        well(body);
        // bucket = open(bucket); its handle stands behind the reply's first word.
        text(body, 1);
        body.i32_const(REPLY).call(1);
        well(body);
        body.i32_const(REPLY).i32_load(MemArg { offset: 4, align: 2, memory_index: 0 }).local_tee(handle);
        // bucket.set(key, stream's name)
        body.i32_const(KEY).i32_const(1);
        text(body, 0);
        body.i32_const(REPLY).call(2);
        well(body);
        body.local_get(handle).call(3);
    })
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A module with these imports (function 0 and on) and constants, whose `handle` does what `body` adds
/// and answers that all is well. `body` learns where each constant stands, and how long it is; in it
/// local 0 points to the arguments, local 1 is a free i64, local 2 a free i32.
fn module(
    imports: &[Import],
    constants: &[&str],
    body: impl FnOnce(&mut InstructionSink<'_>, &[(i32, i32)]),
) -> Vec<u8> {
    let mut data = DataSection::new();
    let (mut places, mut heap) = (Vec::new(), CONSTANTS);
    for constant in constants {
        // Guests are far below 2^31 bytes.
        let bytes = i32::try_from(constant.len()).unwrap_or(i32::MAX);
        data.active(0, &ConstExpr::i32_const(heap), constant.bytes());
        places.push((heap, bytes));
        heap = heap.saturating_add(bytes);
    }
    heap = heap.saturating_add(15) & !15;

    let mut types = TypeSection::new();
    let mut imported = ImportSection::new();
    for (number, Import(interface, name, parameters, results)) in (0..).zip(imports) {
        types.ty().function(parameters.iter().copied(), results.iter().copied());
        imported.import(interface, name, EntityType::Function(number));
    }
    let (handle_type, realloc_type) = (types.len(), types.len() + 1);
    types.ty().function([I32], [I32]);
    types.ty().function([I32; 4], [I32]);
    let mut functions = FunctionSection::new();
    functions.function(handle_type).function(realloc_type);
    let mut memories = MemorySection::new();
    let minimum = u64::from(heap.unsigned_abs() >> PAGE_BITS) + 1;
    memories.memory(MemoryType {
        minimum,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut globals = GlobalSection::new();
    let of_heap = GlobalType { val_type: I32, mutable: true, shared: false };
    globals.global(of_heap, &ConstExpr::i32_const(heap));
    let (handle, realloc) = (imported.len(), imported.len() + 1);
    let mut exports = ExportSection::new();
    exports.export("handle", ExportKind::Func, handle);
    exports.export("cabi_realloc", ExportKind::Func, realloc);
    exports.export("memory", ExportKind::Memory, 0);
    let mut code = CodeSection::new();
    code.function(&handler(heap, |code| body(code, &places))).function(&reallocation());

    let mut module = Module::new();
    module.section(&types).section(&imported).section(&functions).section(&memories);
    module.section(&globals).section(&exports).section(&code).section(&data);
    module.finish()
}

/// `handle`: the work, then the heap is empty again.
fn handler(heap: i32, body: impl FnOnce(&mut InstructionSink<'_>)) -> Function {
    let mut function = Function::new([(1, I64), (1, I32)]);
    let mut code = function.instructions();
    body(&mut code);
    code.i32_const(heap).global_set(0).i32_const(ANSWER).end();
    function
}

/// `cabi_realloc`: a piece at the end of the heap, for which the memory grows as it must. What was handed
/// out is never enlarged: the host does not ask for that.
fn reallocation() -> Function {
    let (old_bytes, align, bytes, place, pages) = (1, 2, 3, 4, 5);
    let mut function = Function::new([(2, I32)]);
    let mut code = function.instructions();
    code.local_get(old_bytes).if_(BlockType::Empty).unreachable().end();
    // place = (heap + align - 1) & -align
    code.global_get(0).local_get(align).i32_add().i32_const(1).i32_sub();
    code.i32_const(0).local_get(align).i32_sub().i32_and().local_set(place);
    // heap = place + bytes
    code.local_get(place).local_get(bytes).i32_add().global_set(0);
    // pages = (heap + 65535) >> 16, less those that are there
    code.global_get(0).i32_const((1 << PAGE_BITS) - 1).i32_add().i32_const(PAGE_BITS).i32_shr_u();
    code.memory_size(0).i32_sub().local_tee(pages);
    code.i32_const(0).i32_gt_s().if_(BlockType::Empty);
    code.local_get(pages).memory_grow(0).i32_const(-1).i32_eq().if_(BlockType::Empty).unreachable().end();
    code.end();
    code.local_get(place).end();
    function
}
