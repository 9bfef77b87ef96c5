// Threads that wait for work, made when they are first needed, and again after a fork.
#pragma once

#include <functional>

namespace bertsmith {

// Calls work(rank, size) on this thread, as rank 0, and on up to `most` - 1 threads that are idle,
// after start(size) here; returns when all are done. Never waits for a thread to become idle.
void run_threads(
    int most, const std::function<void(int, int)>& work, const std::function<void(int)>& start = {}
);

}  // namespace bertsmith
