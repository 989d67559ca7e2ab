// A compute that takes a given time and no processor: an asynchronous XLA FFI handler.
//
// The handler returns at once with a future and lets a thread of its own complete it when the time
// is over, so that the executor's thread is free meanwhile and a collective can overlap the sleep.
// Whatever XLA runs after the sleep (often the next collective, which waits for its peers) runs on
// the completing thread. So every sleep under way needs a thread of its own: one thread for all
// would wait for itself. Threads are kept and used again; a sleep never queues behind another.

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <sys/prctl.h>
#include <time.h>
#endif

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// How often a long sleep looks whether the process is ending.
constexpr auto kSlice = std::chrono::milliseconds(100);
constexpr auto kStopPatience = std::chrono::seconds(5);

std::atomic<int64_t> calls{0};         // sleeps asked for since the process started
std::atomic<int64_t> under_way{0};     // sleeps whose continuation hasn't returned
std::atomic<int64_t> asleep{0};        // threads waiting for a deadline
std::atomic<int64_t> most_at_once{0};  // highest value of asleep
std::atomic<bool> stopping{false};

struct Sleep {
  Clock::time_point deadline;
  const float* token;
  float* result;
  size_t bytes;
  ffi::Promise promise;
  std::fenv_t float_environment;

  void Complete() {
    if (result != token) std::memcpy(result, token, bytes);
    promise.SetAvailable();
  }
};

void SleepUntil(Clock::time_point deadline) {
  while (!stopping.load(std::memory_order_relaxed)) {
    Clock::time_point now = Clock::now();
    if (now >= deadline) return;
    Clock::time_point next = std::min(deadline, now + kSlice);
#if defined(__linux__)
    // steady_clock is CLOCK_MONOTONIC here; an absolute time isn't lengthened by preemption.
    int64_t ns = std::chrono::duration_cast<nanoseconds>(next.time_since_epoch()).count();
    timespec until = {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
#else
    std::this_thread::sleep_until(next);
#endif
  }
}

void CountAsleep() {
  int64_t now = asleep.fetch_add(1) + 1;
  int64_t most = most_at_once.load();
  while (now > most && !most_at_once.compare_exchange_weak(most, now)) {
  }
}

class Threads {
 public:
  // Gives `sleep` a thread: an idle one, else a new one. False if there can be no more threads.
  bool Start(Sleep sleep) {
    std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(sleep));
    if (waiting_.size() <= idle_) {
      ready_.notify_one();
      return true;
    }
    try {
      std::thread([this] { Serve(); }).detach();
    } catch (const std::system_error&) {
      waiting_.pop_back();
      return false;
    }
    return true;
  }

 private:
  void Serve() {
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds; the default of 50,000 makes every sleep late
#endif
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ++idle_;
      ready_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      Sleep sleep = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      // What XLA runs next on this thread must round and flush as it would on its own.
      std::fesetenv(&sleep.float_environment);
      CountAsleep();
      SleepUntil(sleep.deadline);
      asleep.fetch_sub(1);
      sleep.Complete();
      under_way.fetch_sub(1);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Sleep> waiting_;
  size_t idle_ = 0;
};

// Never destroyed: its threads outlive main().
Threads& threads = *new Threads;

ffi::Future StartSleep(ffi::Buffer<ffi::F32> token, ffi::ResultBuffer<ffi::F32> result,
                       int64_t asked_ns, int64_t overhead_ns) {
  Clock::time_point entry = Clock::now();
  calls.fetch_add(1);
  ffi::Promise promise;
  ffi::Future future(promise);  // before the promise is copied: XLA asserts it
  Sleep sleep{entry + nanoseconds(asked_ns - overhead_ns), token.typed_data(),
              result->typed_data(), token.size_bytes(), promise, {}};
  if (asked_ns <= overhead_ns || stopping.load()) {
    sleep.Complete();
    return future;
  }
  std::fegetenv(&sleep.float_environment);
  under_way.fetch_add(1);
  if (!threads.Start(std::move(sleep))) {
    under_way.fetch_sub(1);
    promise.SetError(ffi::Error::Internal(
        "the sleep payload could not start another thread; raise the limit (ulimit -u) or use "
        "fewer devices"));
  }
  return future;
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxbench_sleep, StartSleep,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<int64_t>("nanoseconds")
                                  .Attr<int64_t>("overhead_ns"));

extern "C" {

int64_t jaxbench_sleep_calls() { return calls.load(); }

int64_t jaxbench_sleep_most_at_once() { return most_at_once.load(); }

// Ends all sleeps, present and future, and waits until nothing runs on their threads any more:
// called before XLA is taken down at the end of the process. Returns how many are still under way.
int64_t jaxbench_sleep_stop() {
  stopping.store(true);
  Clock::time_point patience = Clock::now() + kStopPatience;
  while (under_way.load() > 0 && Clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return under_way.load();
}

}  // extern "C"
