;; `wasi_snapshot_preview1` for a transport: the functions that the standard library links
;; on wasm32-wasip1, built on the two interfaces that a host grants, wall clock and
;; randomness. Everything else is answered here, so that the component imports nothing more:
;; the environment is empty, and output is dropped. A transport that imports any other
;; function cannot become a component: the error names the function.
;;
;; Error numbers: 0 success, 28 inval.
(module
  (import "env" "memory" (memory 0))
  (import "wasi:random/random@0.2.0" "get-random-u64" (func $random (result i64)))
  (import "wasi:clocks/wall-clock@0.2.0" "now" (func $now (param i32)))

  (func (export "random_get") (param $pointer i32) (param $length i32) (result i32)
    (local $bits i64)
    (block $done
      (loop $words
        (br_if $done (i32.lt_u (local.get $length) (i32.const 8)))
        (i64.store align=1 (local.get $pointer) (call $random))
        (local.set $pointer (i32.add (local.get $pointer) (i32.const 8)))
        (local.set $length (i32.sub (local.get $length) (i32.const 8)))
        (br $words)))
    (if (local.get $length)
      (then
        (local.set $bits (call $random))
        (loop $bytes
          (i64.store8 (local.get $pointer) (local.get $bits))
          (local.set $bits (i64.shr_u (local.get $bits) (i64.const 8)))
          (local.set $pointer (i32.add (local.get $pointer) (i32.const 1)))
          (local.set $length (i32.sub (local.get $length) (i32.const 1)))
          (br_if $bytes (local.get $length)))))
    (i32.const 0))

  ;; The realtime clock (0) only: a transport's own clock is an argument of its calls.
  ;;
  ;; `now` writes 16 bytes, but the caller has given 8. An adapter has no memory of its own,
  ;; so it borrows the 8 bytes before the caller's and restores them.
  (func (export "clock_time_get")
    (param $clock i32) (param $precision i64) (param $result i32) (result i32)
    (local $area i32) (local $borrowed i64) (local $time i64)
    (if (i32.or
          (local.get $clock)
          (i32.or
            (i32.and (local.get $result) (i32.const 7))
            (i32.lt_u (local.get $result) (i32.const 8))))
      (then (return (i32.const 28))))
    (local.set $area (i32.sub (local.get $result) (i32.const 8)))
    (local.set $borrowed (i64.load (local.get $area)))
    (call $now (local.get $area))
    (local.set $time
      (i64.add
        (i64.mul (i64.load (local.get $area)) (i64.const 1000000000))
        (i64.load32_u offset=8 (local.get $area))))
    (i64.store (local.get $area) (local.get $borrowed))
    (i64.store (local.get $result) (local.get $time))
    (i32.const 0))

  (func (export "environ_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (i32.const 0))

  (func (export "environ_get") (param i32 i32) (result i32)
    (i32.const 0))

  ;; Counts the bytes, and drops them.
  (func (export "fd_write")
    (param $file i32) (param $slices i32) (param $count i32) (param $written i32) (result i32)
    (local $total i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $total
          (i32.add (local.get $total) (i32.load offset=4 (local.get $slices))))
        (local.set $slices (i32.add (local.get $slices) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $total))
    (i32.const 0))

  (func (export "sched_yield") (result i32)
    (i32.const 0))
  (func (export "proc_exit") (param i32)
    (unreachable)))
