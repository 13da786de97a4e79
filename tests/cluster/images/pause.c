// Does nothing but end when asked and collect the dead: the process that holds a pod's namespaces, and process 1 of a test node.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void collect(int signal)
{
	(void)signal;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
}

int main(void)
{
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, collect);
	for (;;)
		pause();
}
