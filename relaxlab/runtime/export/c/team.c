/* The threads of an exported library: the four functions of OpenMP that compiled code calls.
 *
 * Every thread that calls the library has a team of its own, whose workers wait between calls.
 * To wait is to look again for some microseconds, which is what the next kernel takes to arrive,
 * and then to sleep in the kernel: a machine that is busy with other things gets its processors
 * back, as the much longer spinning of OpenMP runtimes would not let it. */

#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOKS = 1000, STACK = 8 << 20 }; /* programs stop their own recursion at 2 MB */

/* A number that is waited for, and how many threads sleep until it changes. */
struct signal {
    atomic_int value, sleepers;
};

struct team {
    struct signal round, phase; /* of calls, of barriers within them */
    atomic_int arrived;
    int count, looks;
    void (*run)(void *);
    void *data;
    pid_t process;
    int over;
    pthread_t workers[];
};

struct worker {
    struct team *team;
    int number, round;
};

static __thread struct { struct team *team; int number; } me;
static __thread struct team *mine;
static pthread_key_t at_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_away(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory");
#endif
}

static void wait_while(struct signal *s, int old, int looks) {
    for (int i = 0; i < looks; i++) {
        if (atomic_load_explicit(&s->value, memory_order_acquire) != old) return;
        look_away();
    }
    while (atomic_load(&s->value) == old) {
        atomic_fetch_add(&s->sleepers, 1);
        syscall(SYS_futex, &s->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
        atomic_fetch_sub(&s->sleepers, 1);
    }
}

static void advance(struct signal *s) {
    atomic_fetch_add(&s->value, 1);
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void meet(struct team *t) {
    int phase = atomic_load(&t->phase.value);
    if (atomic_fetch_add(&t->arrived, 1) == t->count - 1) {
        atomic_store(&t->arrived, 0);
        advance(&t->phase);
    } else {
        wait_while(&t->phase, phase, t->looks);
    }
}

static void *work(void *argument) {
    struct worker w = *(struct worker *)argument;
    struct team *t = w.team;
    free(argument);
    me.team = t;
    me.number = w.number;
    for (int round = w.round;; round++) {
        wait_while(&t->round, round, t->looks);
        if (t->over) return NULL;
        t->run(t->data);
        meet(t);
    }
}

static void dismiss(void *team) {
    struct team *t = team;
    if (!t || t->process != getpid()) return; /* after a fork its workers are gone */
    t->over = 1;
    advance(&t->round);
    for (int i = 1; i < t->count; i++) pthread_join(t->workers[i], NULL);
    free(t);
}

static void make_key(void) { pthread_key_create(&at_exit, dismiss); }

/* A team of `count` threads, this one included; smaller where the system gives no more. */
static struct team *assemble(int count) {
    struct team *t = calloc(1, sizeof *t + (size_t)count * sizeof(pthread_t));
    if (!t) return NULL;
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) ? count : CPU_COUNT(&set);
    t->looks = count <= processors ? LOOKS : 0;
    t->process = getpid();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (t->count = 1; t->count < count; t->count++) {
        struct worker *w = malloc(sizeof *w);
        if (!w) break;
        *w = (struct worker){t, t->count, 0};
        if (pthread_create(&t->workers[t->count], &attributes, work, w)) {
            free(w);
            break;
        }
    }
    pthread_attr_destroy(&attributes);
    return t;
}

/* This thread's team. */
static struct team *gather(int count) {
    static __thread int asked;
    if (mine && asked == count && mine->process == getpid()) return mine;
    pthread_once(&once, make_key);
    dismiss(mine);
    mine = assemble(count);
    asked = count;
    pthread_setspecific(at_exit, mine);
    return mine;
}

void GOMP_parallel(void (*run)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    struct team *t = gather((int)count);
    if (!t || t->count == 1) {
        run(data);
        return;
    }
    t->run = run;
    t->data = data;
    me.team = t;
    me.number = 0;
    advance(&t->round);
    run(data);
    meet(t);
    me.team = NULL;
}

void GOMP_barrier(void) {
    if (me.team) meet(me.team);
}

int omp_get_thread_num(void) { return me.team ? me.number : 0; }

int omp_get_num_threads(void) { return me.team ? me.team->count : 1; }
