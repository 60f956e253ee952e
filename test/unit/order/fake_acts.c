/* SPDX-License-Identifier: MIT */
/* What a test does to the scripted driver. */
#include "fake.h"

void fake_stream_create(struct fake *fake, int stream, int context)
{
    static uint64_t last_id = 1000;
    fake->streams[stream] =
        (struct fake_stream){.context = context, .id = ++last_id, .is_alive = true};
}

void fake_complete(struct fake *fake, int event)
{
    pthread_mutex_lock(&fake->mutex);
    fake->events[event].is_complete = true;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_complete_context(struct fake *fake, int context)
{
    for (int i = 0; i < FAKE_EVENTS; i++)
        if (fake->events[i].context == context)
            fake_complete(fake, i);
}

void fake_context_destroy(struct fake *fake, int context)
{
    pthread_mutex_lock(&fake->mutex);
    fake->contexts[context].is_alive = false;
    for (int i = 0; i < fake->n_created; i++)
        if (fake->events[i].context == context && fake->events[i].is_alive) {
            fake->events[i].is_alive = false;
            fake->n_destroyed++;
        }
    pthread_mutex_unlock(&fake->mutex);
}

void fake_context_create(struct fake *fake, int context)
{
    static uint64_t last_id = 500;
    fake->contexts[context] = (struct fake_context){.is_alive = true, .id = ++last_id};
}

void fake_capture(struct fake *fake, int stream, bool begin)
{
    pthread_mutex_lock(&fake->mutex);
    struct fake_stream *known = &fake->streams[stream];
    known->is_capturing = begin;
    fake->contexts[known->context].n_captures += begin ? 1 : -1;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_await_stop(struct fake *fake)
{
    pthread_mutex_lock(&fake->mutex);
    while (!fake->is_stopped)
        pthread_cond_wait(&fake->changed, &fake->mutex);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_go(struct fake *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->stop = FAKE_STOP_NONE;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->mutex);
}
