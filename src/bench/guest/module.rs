//! The guests' core modules, instruction by instruction.
//!
//! A guest has one memory: below [`HEAP`] stand its constants and what calls answer; from there on, what
//! the host hands over of an event is placed piece after piece. The next call begins there anew, so a
//! guest never grows beyond its largest event.

use std::time::Duration;

use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, InstructionSink, MemorySection, MemoryType, Module,
    TypeSection, ValType,
};

use super::Work;

/// Where the answer of `handle` stands. All of it is zero, which means: well.
const ANSWER: i32 = 16;

/// Where the event begins.
const HEAP: i32 = 1024;

/// log2 of the bytes of a page of memory.
const PAGE_BITS: i32 = 16;

const CLOCK: &str = "wasi:clocks/monotonic-clock@0.2.0";
const POLL: &str = "wasi:io/poll@0.2.0";

/// A function of the host: its interface, its name, and its type in the canonical ABI.
struct Import(&'static str, &'static str, &'static [ValType], &'static [ValType]);

/// A guest that does this work.
pub(super) fn working(work: Work) -> Vec<u8> {
    match work {
        Work::Nothing => module(&[], |_| {}),
        Work::Compute(time) => module(&[Import(CLOCK, "now", &[], &[ValType::I64])], |body| {
            // Until the clock shows that the time is over: `end` is in local 1.
            body.call(0).i64_const(nanos(time)).i64_add().local_set(1);
            body.loop_(BlockType::Empty).call(0).local_get(1).i64_lt_u().br_if(0).end();
        }),
        Work::Wait(time) => {
            let imports = [
                Import(CLOCK, "subscribe-duration", &[ValType::I64], &[ValType::I32]),
                Import(POLL, "[method]pollable.block", &[ValType::I32], &[]),
                Import(POLL, "[resource-drop]pollable", &[ValType::I32], &[]),
            ];
            module(&imports, |body| {
                body.i64_const(nanos(time)).call(0).local_tee(2).call(1).local_get(2).call(2);
            })
        }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A module with these imports (function 0 and on), whose `handle` does what `body` adds and answers
/// that all is well. In `body` local 0 points to the arguments, local 1 is a free i64, local 2 a free
/// i32.
fn module(imports: &[Import], body: impl FnOnce(&mut InstructionSink<'_>)) -> Vec<u8> {
    let mut types = TypeSection::new();
    let mut imported = ImportSection::new();
    for (number, Import(interface, name, parameters, results)) in (0..).zip(imports) {
        types.ty().function(parameters.iter().copied(), results.iter().copied());
        imported.import(interface, name, EntityType::Function(number));
    }
    let (handle_type, realloc_type) = (types.len(), types.len() + 1);
    types.ty().function([ValType::I32], [ValType::I32]);
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(handle_type).function(realloc_type);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut globals = GlobalSection::new();
    let heap = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    globals.global(heap, &ConstExpr::i32_const(HEAP));
    let (handle, realloc) = (imported.len(), imported.len() + 1);
    let mut exports = ExportSection::new();
    exports.export("handle", ExportKind::Func, handle);
    exports.export("cabi_realloc", ExportKind::Func, realloc);
    exports.export("memory", ExportKind::Memory, 0);
    let mut code = CodeSection::new();
    code.function(&handler(body)).function(&reallocation());

    let mut module = Module::new();
    module.section(&types).section(&imported).section(&functions).section(&memories);
    module.section(&globals).section(&exports).section(&code);
    module.finish()
}

/// `handle`: the work, then the heap is empty again.
fn handler(body: impl FnOnce(&mut InstructionSink<'_>)) -> Function {
    let mut function = Function::new([(1, ValType::I64), (1, ValType::I32)]);
    let mut code = function.instructions();
    body(&mut code);
    code.i32_const(HEAP).global_set(0).i32_const(ANSWER).end();
    function
}

/// `cabi_realloc`: a piece at the end of the heap, for which the memory grows as it must. What was handed
/// out is never enlarged: the host does not ask for that.
fn reallocation() -> Function {
    let (old_bytes, align, bytes, place, pages) = (1, 2, 3, 4, 5);
    let mut function = Function::new([(2, ValType::I32)]);
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
