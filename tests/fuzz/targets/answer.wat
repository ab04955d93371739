;; A handler that answers with whatever it is given. Its event's payload is {"":"HEX"}: the bytes that
;; HEX spells are put at address 256. The handler's answer is what lies there, 20 bytes. Byte 20 says
;; how many events it appends before (modulo 4): the arguments of each are the 14 words that follow
;; from byte 24 on, so that texts, lists and options lie anywhere in its memory, or outside of it.
(component
  (import "wasmill:handler/types@0.1.0" (instance $types
    (type $event (record
      (field "id" string) (field "stream-name" string) (field "partition" u32)
      (field "sequence" u64) (field "timestamp" string) (field "timestamp-ms" (option s64))
      (field "key" (option string)) (field "event-type" (option string))
      (field "metadata" (list (tuple string string))) (field "payload" (list u8))))
    (export "event" (type (eq $event)))
    (type $delivery (record
      (field "pipeline" string) (field "group" string) (field "attempt" u32)
      (field "max-attempts" u32) (field "timeout-ms" u32)))
    (export "delivery" (type (eq $delivery)))
    (type $retry (record (field "reason" string) (field "delay-ms" (option u32))))
    (export "retry" (type $named-retry (eq $retry)))
    (type $failure (variant (case "retry" $named-retry) (case "reject" string)))
    (export "failure" (type (eq $failure)))))
  (import "wasmill:handler/outbox@0.1.0" (instance $outbox
    (type $new-event (record
      (field "event-type" (option string)) (field "key" (option string)) (field "partition" (option u32))
      (field "metadata" (list (tuple string string))) (field "payload" (list u8))))
    (export "new-event" (type $named-new-event (eq $new-event)))
    (type $error (variant (case "access-denied" string) (case "invalid" string) (case "limit" string)))
    (export "error" (type $named-error (eq $error)))
    (export "append" (func
      (param "stream-name" string) (param "event" $named-new-event) (result (result (error $named-error)))))))
  (alias export $types "event" (type $event))
  (alias export $types "delivery" (type $delivery))
  (alias export $types "failure" (type $failure))
  (core module $memory
    (memory (export "memory") 1)
    (global $free (export "free") (mut i32) (i32.const 8192))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.get $free)
      (global.set $free (i32.and (i32.const -8)
        (i32.add (i32.const 7) (i32.add (global.get $free) (local.get 3)))))))
  (core instance $m (instantiate $memory))
  (core func $append (canon lower (func $outbox "append")
    (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
  (core module $main
    (import "m" "memory" (memory 1))
    (import "m" "free" (global $free (mut i32)))
    (import "m" "append" (func $append
      (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
    (func $digit (param $at i32) (result i32)
      (local $c i32)
      (local.set $c (i32.load8_u (local.get $at)))
      (if (result i32) (i32.lt_u (local.get $c) (i32.const 97))
        (then (i32.sub (local.get $c) (i32.const 48)))
        (else (i32.sub (local.get $c) (i32.const 87)))))
    (func $word (param $base i32) (param $n i32) (result i32)
      (i32.load (i32.add (local.get $base) (i32.mul (local.get $n) (i32.const 4)))))
    (func (export "handle") (param $args i32) (result i32)
      (local $at i32) (local $end i32) (local $to i32) (local $left i32)
      ;; The payload stands at byte 88 of the arguments: its address and its length.
      (local.set $at (i32.add (i32.load offset=88 (local.get $args)) (i32.const 5)))
      (local.set $end (i32.add (local.get $at) (i32.sub (i32.load offset=92 (local.get $args)) (i32.const 8))))
      (local.set $to (i32.const 256))
      (block $done (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (i32.store8 (local.get $to) (i32.or
          (i32.shl (call $digit (local.get $at)) (i32.const 4))
          (call $digit (i32.add (local.get $at) (i32.const 1)))))
        (local.set $at (i32.add (local.get $at) (i32.const 2)))
        (local.set $to (i32.add (local.get $to) (i32.const 1)))
        (br $next)))
      (local.set $left (i32.and (i32.load8_u (i32.const 276)) (i32.const 3)))
      (local.set $at (i32.const 280))
      (block $sent (loop $next
        (br_if $sent (i32.eqz (local.get $left)))
        (call $append
          (call $word (local.get $at) (i32.const 0)) (call $word (local.get $at) (i32.const 1))
          (call $word (local.get $at) (i32.const 2)) (call $word (local.get $at) (i32.const 3))
          (call $word (local.get $at) (i32.const 4)) (call $word (local.get $at) (i32.const 5))
          (call $word (local.get $at) (i32.const 6)) (call $word (local.get $at) (i32.const 7))
          (call $word (local.get $at) (i32.const 8)) (call $word (local.get $at) (i32.const 9))
          (call $word (local.get $at) (i32.const 10)) (call $word (local.get $at) (i32.const 11))
          (call $word (local.get $at) (i32.const 12)) (call $word (local.get $at) (i32.const 13))
          (i32.const 64))
        (local.set $at (i32.add (local.get $at) (i32.const 56)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $next)))
      ;; The next call begins with an empty heap.
      (global.set $free (i32.const 8192))
      (i32.const 256)))
  (core instance $main (instantiate $main
    (with "m" (instance
      (export "memory" (memory $m "memory"))
      (export "free" (global $m "free"))
      (export "append" (func $append))))))
  (func (export "handle")
    (param "event" $event) (param "delivery" $delivery) (result (result (error $failure)))
    (canon lift (core func $main "handle")
      (memory (core memory $m "memory")) (realloc (core func $m "realloc")))))
