#include "threads.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "encoder.h"

#include <immintrin.h>

namespace bertsmith {
namespace {

// About 20 microseconds: a step of a short text is over by then.
constexpr int SPINS = 500;

template <class Ready>
bool spin(Ready&& ready) {
    for (int i = 0; i < SPINS; i++) {
        if (ready()) return true;
        _mm_pause();
    }
    return false;
}

struct Job {
    const std::function<void(int, int)>* work;
    int size;
    int core;  // of the thread that gives it
    std::atomic<int> left;
    std::mutex mutex;
    std::condition_variable done;
};

// Keeps a thread off a core while it lives, if the thread runs there and may run elsewhere. Linux
// likes to wake a thread where it was woken from. There it would take turns with the one that waits
// for it, for as long as both have work, though another core is idle.
class Elsewhere {
public:
    explicit Elsewhere(int core) {
        if (core < 0 || core >= CPU_SETSIZE || sched_getcpu() != core) return;
        if (sched_getaffinity(0, sizeof(allowed_), &allowed_)) return;
        cpu_set_t others = allowed_;
        CPU_CLR(core, &others);
        moved_ = CPU_COUNT(&others) && !sched_setaffinity(0, sizeof(others), &others);
    }
    ~Elsewhere() {
        if (moved_) sched_setaffinity(0, sizeof(allowed_), &allowed_);
    }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

private:
    cpu_set_t allowed_;
    bool moved_ = false;
};

class Worker {
public:
    void give(Job* job, int rank) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            rank_ = rank;
            job_.store(job, std::memory_order_release);
        }
        given_.notify_one();
    }

    void loop() {
        for (;;) {
            const auto ready = [&] { return job_.load(std::memory_order_acquire) != nullptr; };
            if (!spin(ready)) {
                std::unique_lock<std::mutex> lock(mutex_);
                given_.wait(lock, ready);
            }
            Job* job = job_.load();
            {
                Elsewhere elsewhere(job->core);
                (*job->work)(rank_, job->size);
            }
            job_ = nullptr;
            idle = true;
            // under its lock: the job is gone once its owner has seen that nothing is left
            std::lock_guard<std::mutex> lock(job->mutex);
            if (--job->left == 0) job->done.notify_one();
        }
    }

    std::atomic<bool> idle{true};

private:
    std::mutex mutex_;
    std::condition_variable given_;
    std::atomic<Job*> job_{nullptr};
    int rank_ = 0;
};

class Pool {
public:
    // Up to `count` idle workers, made if there are not as many.
    std::vector<Worker*> claim(int count) {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<Worker*> claimed;
        for (const auto& worker : workers_) {
            if (static_cast<int>(claimed.size()) == count) return claimed;
            if (worker->idle.exchange(false)) claimed.push_back(worker.get());
        }
        while (static_cast<int>(claimed.size()) < count && static_cast<int>(workers_.size()) < count) {
            auto worker = std::make_unique<Worker>();
            Worker* own = worker.get();
            try {
                std::thread([own] { own->loop(); }).detach();
            } catch (const std::system_error&) {
                return claimed;
            }
            own->idle = false;
            claimed.push_back(own);
            workers_.push_back(std::move(worker));
        }
        return claimed;
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Worker>> workers_;
};

// never deleted: its threads wait until the process ends
std::atomic<Pool*> pool{nullptr};

Pool& current_pool() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { pool = nullptr; });
    (void)registered;
    Pool* own = pool.load();
    if (!own) {
        Pool* made = new Pool;
        if (pool.compare_exchange_strong(own, made)) return *made;
        delete made;
    }
    return *own;
}

}  // namespace

void run_threads(
    int most, const std::function<void(int, int)>& work, const std::function<void(int)>& start
) {
    std::vector<Worker*> workers;
    if (most > 1) workers = current_pool().claim(most - 1);
    Job job;
    job.work = &work;
    job.size = static_cast<int>(workers.size()) + 1;
    job.core = sched_getcpu();
    job.left = static_cast<int>(workers.size());
    if (start) start(job.size);
    for (size_t i = 0; i < workers.size(); i++) workers[i]->give(&job, static_cast<int>(i) + 1);
    work(0, job.size);
    if (workers.empty()) return;
    const auto over = [&] { return job.left.load(std::memory_order_acquire) == 0; };
    spin(over);
    std::unique_lock<std::mutex> lock(job.mutex);
    job.done.wait(lock, over);
}

void Team::wait_for_all() {
    const int phase = __atomic_load_n(&phase_, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&arrived_, 1, __ATOMIC_ACQ_REL) == size) {
        arrived_ = 0;
        __atomic_store_n(&phase_, phase + 1, __ATOMIC_RELEASE);
        return;
    }
    const auto passed = [&] { return __atomic_load_n(&phase_, __ATOMIC_ACQUIRE) != phase; };
    while (!spin(passed)) std::this_thread::yield();
}

}  // namespace bertsmith
