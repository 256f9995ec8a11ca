"""What a worker of the hiring workflow is started with: counterfoil worker --app app:cf.

`python app.py hiring-1` starts a workflow; started twice, it is the same one.
"""

import os
import sys
from pathlib import Path

from counterfoil.demo.hiring.office import Office, open_office
from counterfoil.demo.hiring.timeline import given
from counterfoil.demo.hiring.workflow import Patience

# Days are long to watch: whoever does not answer is reminded after ten minutes.
cf = open_office(
    Office(
        url=os.environ.get("COUNTERFOIL_URL", "sqlite:///hiring.db"),
        mail_port=int(os.environ["HIRING_MAIL_PORT"]),
        gateway=os.environ["HIRING_GATEWAY"],
        reports=Path.cwd(),
        patience=Patience(slot="10m", reminded="10m", feedback="10m"),
    )
)

if __name__ == "__main__":
    found = cf.workflows.start("hiring", given(), tenant="team-A", workflow_id=sys.argv[1])
    print(found.workflow_id, found.status, "new" if found.is_new else "known")
    cf.close()
