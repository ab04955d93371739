//! What every backend promises, as executable checks written against the trait.
//!
//! Each promise is a function that takes a [`Store`] and fails with what was promised, expected
//! and found. [`crate::conformance_promises`] lists them all, so that a test file gets one test
//! per promise and backend. A backend is finished when all of them hold.
//!
//! No promise depends on speed: where something must not expire its lease is an hour long, and
//! where something must happen the check repeats until it does, with a deadline that only a
//! hanging store misses.

use std::time::Duration;

use async_trait::async_trait;

use super::Shared;

#[macro_use]
mod kit;
mod control_kit;

pub mod append;
pub mod attempts;
pub mod claim;
pub mod concurrency;
pub mod dead_letters;
pub mod delete;
pub mod effects;
pub mod explain;
pub mod fairness;
pub mod frontier;
pub mod heal;
pub mod history;
pub mod leases;
pub mod pending;
pub mod purge;
pub mod read;
pub mod redeliver;
pub mod redrive;
pub mod redriven;
pub mod release;
pub mod replay;
pub mod reset;
pub mod retry;
pub mod rewind;
pub mod settle;
pub mod start;
pub mod state;
pub mod streams;
pub mod suspects;
pub mod trim;
pub mod wait;

/// The size limit, in bytes, that a [`Store`]'s backends are opened with
/// ([`super::Settings::event_bytes_max`]).
pub const EVENT_BYTES_MAX: usize = 64 * 1024;

/// An empty store of its own for one check, as a test's factory makes it.
#[async_trait]
pub trait Store: Send + Sync {
    /// A handle on the store.
    fn backend(&self) -> Shared;

    /// A second handle on the same store, as another process would have it.
    ///
    /// # Errors
    /// Whatever kept it from being opened.
    async fn other(&self) -> anyhow::Result<Shared>;

    /// A handle on the same store in another namespace.
    ///
    /// # Errors
    /// Whatever kept it from being opened.
    async fn elsewhere(&self) -> anyhow::Result<Shared>;

    /// Lets `time` pass on the store's clock: moves the clock, or sleeps where it cannot be moved.
    async fn pass(&self, time: Duration);

    /// Whether [`Store::pass`] moves the clock, and time stands still otherwise.
    fn moves_time(&self) -> bool;
}

/// Calls the macro `$callback` with all promises: `$callback! { [$extra…] module { promise … } … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_promises {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            streams {
                answers_a_ping
                creates_a_stream_once
                refuses_impossible_streams
                lists_streams_sorted
                creates_a_group_once
                refuses_impossible_groups
                lists_groups_sorted
                names_what_is_missing
                takes_names_literally
                begins_where_the_group_was_told_to
                keeps_namespaces_apart
                creates_once_among_many
            }
            append {
                numbers_without_gaps_in_the_order_given
                keeps_every_byte
                writes_all_or_nothing
                refuses_what_is_too_large
                takes_a_batch_up_to_its_bound
                routes_by_key
                makes_ids_and_times
                keeps_order_among_concurrent_appenders
            }
            read {
                pages_through_a_partition
                keeps_settled_events
                names_what_is_missing
            }
            claim {
                gives_exactly_the_limit
                gives_events_in_order
                gives_the_whole_event
                takes_only_the_partitions_named
                names_what_is_missing
                serves_groups_independently
                leases_each_event_once_among_many
            }
            leases {
                are_left_alone_while_they_hold
                pass_on_when_they_run_out
                give_a_new_token_each_time
                refuse_a_stale_holder_everything
                outlive_their_time_until_taken
                are_taken_back_by_sweeps_only
                last_as_long_as_they_are_renewed
                renew_after_their_time_until_taken
                are_found_behind_many_live_ones
                belong_to_one_group
            }
            settle {
                acks_once
                answers_each_item_in_order
                refuses_the_receipt_of_another_entry
                takes_a_batch_up_to_its_bound
                names_what_is_missing
                leaves_the_rest_to_other_consumers
            }
            retry {
                waits_for_its_time
                blocks_nothing_else
                keeps_its_failure
                comes_back_at_once_without_a_delay
                is_found_behind_many_live_leases
            }
            release {
                gives_the_attempt_back
                is_claimable_at_once
                keeps_earlier_attempts
            }
            attempts {
                are_capped_when_leases_run_out
                are_capped_at_one
                are_capped_when_retries_come_back
                count_each_kind_of_end
            }
            suspects {
                are_passed_over_and_taken_alone
                come_one_at_a_time
                die_of_a_second_expiry
                stay_suspects_when_released
                are_taken_from_the_partitions_named
                need_an_expiry_just_before
                still_settle_for_their_holder
            }
            dead_letters {
                keep_the_whole_event
                keep_a_reject_without_failure
                page_to_any_depth
                belong_to_one_group
                refuse_an_unknown_cursor
                name_what_is_missing
            }
            frontier {
                stands_before_any_hole
                follows_any_order
                passes_dead_letters
                counts_lag_per_partition
                follows_concurrent_settlers
            }
            pending {
                lists_leased_and_parked
                pages_by_receipt
                forgets_what_is_settled
                names_what_is_missing
            }
            fairness {
                serves_every_partition
                serves_retries_beside_new_events
                serves_new_events_beside_retries
                gives_the_whole_budget_to_who_has_work
            }
            wait {
                ends_with_its_timeout
                ends_when_work_is_there
                ends_with_an_append
                ends_with_an_append_through_another_handle
                ends_with_a_release
                ends_when_a_retry_is_due
                ends_with_a_redrive
                ends_with_a_replay
                names_what_is_missing
            }
            history {
                reads_both_ways
                keeps_its_bounds
                is_complete_while_others_append
                begins_behind_what_was_trimmed
                names_what_is_missing
            }
            start {
                begins_behind_the_sequences_named
                begins_no_later_than_the_end
                refuses_an_unknown_partition
                begins_at_the_end_of_each_partition
                reaches_the_end_of_a_trimmed_stream
            }
            replay {
                delivers_again_what_is_above
                skips_nothing
                makes_leases_above_stale
                brings_parked_events_back_at_once
                touches_only_the_partitions_named
                leaves_other_groups_alone
                goes_no_further_than_the_end
                leaves_dead_letters_where_they_are
                reaches_the_end_of_a_trimmed_stream
                loses_nothing_among_busy_consumers
                names_what_is_missing
            }
            rewind {
                takes_many_pending_in_several_steps
                is_finished_by_claims_alone
                holds_only_its_partitions
                refuses_another_meanwhile
                is_one_among_many
                keeps_what_it_will_deliver
            }
            reset {
                begins_again
                skips_to_the_end
                goes_behind_a_sequence
                makes_every_lease_stale
                leaves_dead_letters_and_other_groups
                reaches_the_end_of_a_trimmed_stream
                names_what_is_missing
            }
            delete {
                takes_everything_of_the_group
                frees_the_name
                is_finished_by_any_handle
                is_finished_by_claims_alone
                names_what_is_missing
            }
            purge {
                removes_the_rows_named
                leaves_cursors_working
                spares_other_groups
                takes_a_batch_up_to_its_bound
                names_what_is_missing
            }
            redrive {
                delivers_the_same_event_afresh
                answers_each_row_in_order
                waits_its_turn_beside_new_events
                leaves_alone_what_is_unsettled
                leaves_the_frontier_alone
                belongs_to_one_group
                happens_once_among_many
                is_seen_by_other_handles
                takes_a_batch_up_to_its_bound
                names_what_is_missing
            }
            redriven {
                can_be_retried
                comes_back_when_its_retry_is_due
                can_die_again
                is_capped_when_leases_run_out
                is_leased_like_any_other
                can_be_released
                is_not_trimmed
                comes_from_the_copy_of_a_trimmed_event
                survives_a_forced_trim
                survives_a_forced_trim_in_any_state
                outlives_a_replay
                outlives_a_reset
                comes_again_after_a_reset
                keeps_its_state_through_a_replay
                outlives_a_rewind_to_before_what_was_trimmed
                is_listed_with_what_is_pending
            }
            redeliver {
                answers_each_event_in_order
                behaves_like_a_redrive
                finds_nothing_that_was_trimmed
                takes_a_batch_up_to_its_bound
                names_what_is_missing
            }
            trim {
                keeps_the_newest
                goes_up_to_a_sequence
                goes_by_age
                goes_where_one_bound_says_so
                goes_in_bounded_steps
                stops_before_what_a_group_needs
                leaves_groups_at_work
                goes_by_force
                loses_nothing_among_busy_consumers
                names_what_is_missing
            }
            explain {
                names_nothing_at_the_end
                names_what_was_never_delivered
                names_what_is_pending
                passes_over_what_was_redriven
                names_what_is_gone
                names_what_is_missing
            }
            heal {
                finds_nothing_while_events_are_handled
                finds_nothing_while_events_are_redriven
                finds_nothing_while_groups_are_moved
                names_what_is_missing
            }
            effects {
                appear_with_the_ack
                continue_the_log
                are_routed_as_appends_are
                need_an_ack_under_a_lease
                respect_who_took_over
                conflict_with_what_was_overtaken
                stand_alone_in_a_batch
                come_in_any_number
                settle_as_plain_acks_do
                are_stale_during_a_rewind
                count_exactly
                wake_who_waits
            }
            state {
                is_kept_by_bucket_and_listed_by_page
            }
            concurrency {
                settles_each_event_once
                forgets_consumers_that_hold_nothing
            }
        }
    };
}
